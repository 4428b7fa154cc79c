package workload

import (
	"context"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
)

const (
	withHooks    = "@hooks" // appended to the names of contenders with all hooks
	hooksCallers = 1024
)

// hooks is the workload distinct for Lockers with and without hooks.
func (b *Bench) hooks(ctx context.Context) error {
	list, err := b.entries(ctx, isOurUnique)
	if err != nil {
		return err
	}
	var all []*entry
	for _, e := range list {
		all = append(all, e, e.variant(e.label+withHooks, func(s *contender.Site) { s.Hooks = true }))
	}
	all = b.open(ctx, all)
	defer b.close(all)
	b.Say("with and without hooks, %d callers", hooksCallers)
	b.warmUp(ctx, all, hooksCallers)
	return eachRound(ctx, b, all, func(e *entry) {
		s, err := newLoop(e, hooksCallers, ownNames(hooksCallers)).run(ctx, b.Round)
		b.note(e.key(report.Hooks, hooksCallers), e.Durable, s, err)
	})
}
