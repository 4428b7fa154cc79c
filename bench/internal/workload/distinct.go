package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
)

// distinct makes each caller lock and unlock its own name.
func (b *Bench) distinct(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return !c.OnlyWaits && !strings.HasSuffix(c.Name, "/"+contender.FloorNotify)
	})
	if err != nil {
		return err
	}
	list = b.open(ctx, list)
	defer b.close(list)
	for _, callers := range b.Callers {
		b.Say("distinct names, %d callers", callers)
		now := slices.DeleteFunc(slices.Clone(list), func(e *entry) bool { return e.Floor && !b.hasFloor(callers) })
		b.warmUp(ctx, now, callers)
		if err := eachRound(ctx, b, now, func(e *entry) {
			s, err := newLoop(e, callers, ownNames(callers)).run(ctx, b.Round)
			b.note(e.key(report.Distinct, callers), e.Durable, s, err)
		}); err != nil {
			return err
		}
	}
	return nil
}

// hasFloor reports whether bare statements are measured with this number of callers.
func (b *Bench) hasFloor(callers int) bool {
	return callers == 1 || callers == 1024 && !b.Quick
}

// ownNames returns names of callers, one each.
func ownNames(callers int) func(caller, cycle int) string {
	names := make([]string, callers)
	for c := range names {
		names[c] = fmt.Sprintf("caller-%d", c)
	}
	return func(caller, _ int) string { return names[caller] }
}
