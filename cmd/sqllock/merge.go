package main

import (
	"iter"

	"github.com/sqllock/sqllock"
)

// item is a name that is listed.
type item struct {
	mode mode
	sqllock.Info
}

// merged reads sequences, each in the order of the names, as one. Where they have the
// same name, that of the first comes first. An error comes as soon as it is read.
func merged(seqs []iter.Seq2[item, error]) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		heads := make([]*head, 0, len(seqs))
		for _, seq := range seqs {
			h := &head{}
			h.next, h.stop = iter.Pull2(seq)
			defer h.stop()
			heads = append(heads, h)
			h.advance()
		}
		for {
			h := first(heads)
			if h == nil || !yield(h.item, h.err) {
				return
			}
			h.advance()
		}
	}
}

// head is what comes next in a sequence.
type head struct {
	next func() (item, error, bool)
	stop func()
	item item
	err  error
	ok   bool
}

func (h *head) advance() { h.item, h.err, h.ok = h.next() }

// first returns which of them is next, or nil at the end.
func first(heads []*head) (best *head) {
	for _, h := range heads {
		switch {
		case !h.ok:
		case h.err != nil:
			return h
		case best == nil || h.item.Name < best.item.Name:
			best = h
		}
	}
	return best
}
