package workload

import (
	"context"
	"slices"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// rttLabel is appended to the names of contenders with a delayed server.
const rttLabel = "@1ms"

// rttCallers are the numbers of callers, as far as the run has them.
var rttCallers = []int{1, 64, 1024}

// rttRounds bounds the rounds.
const rttRounds = 3

// rtt is the workload distinct with a millisecond more of round trip, for all
// contenders with a server.
func (b *Bench) rtt(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return !c.OnlyWaits && !c.Floor && c.Server != server.SQLite
	})
	if err != nil {
		return err
	}
	for i, e := range list {
		list[i] = e.variant(e.label+rttLabel, func(s *contender.Site) { s.Delay = time.Millisecond })
	}
	list = b.open(ctx, list)
	defer b.close(list)
	few := *b
	few.Rounds = min(b.Rounds, rttRounds)
	for _, callers := range b.Callers {
		if !slices.Contains(rttCallers, callers) || b.Quick && callers != 1024 {
			continue
		}
		b.Say("distinct names, 1 ms further away, %d callers", callers)
		b.warmUp(ctx, list, callers)
		if err := eachRound(ctx, &few, list, func(e *entry) {
			s, err := newLoop(e, callers, ownNames(callers)).run(ctx, b.Round)
			b.note(e.key(report.Distinct, callers), e.Durable, s, err)
		}); err != nil {
			return err
		}
	}
	return nil
}
