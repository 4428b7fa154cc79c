package sqllock

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Watch returns an iterator over the states of name: what it is now, and then
// each change that it sees, in their order. A state is a change if the token or
// the State differ from those before, or the value. States that last only for a
// moment may be missed; the last one never is.
//
// It looks at the database with growing pauses, RetryMax at the longest, and when
// a lease expires. While the database cannot be reached it goes on trying. The
// iterator ends, with an error, when ctx ends, when the Locker is closed
// ([ErrClosed]), when the name is invalid ([ErrInvalidName]) or when the database
// refuses. It holds no connection between two looks.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := checkCall(ctx, name); err != nil {
			yield(Info{}, err)
			return
		}
		var last Info
		pause := newPauses(&l.cfg)
		for first := true; ; {
			nap := pause.next()
			row, err := l.look(ctx, name)
			switch info := newInfo(&row); {
			case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed) || l.mode.Classify(err) == driver.Refused):
				yield(Info{}, operatorError("watch", name, err))
				return
			case err != nil: // the database has to come back
			case first || changed(&last, &info):
				if !yield(info, nil) {
					return
				}
				first, last = false, info
				pause = newPauses(&l.cfg)
				nap = 0 // what came meanwhile must not wait
			case info.State == StateHeld && !row.Session:
				nap = min(nap, time.Duration(row.Holder.Until-row.Now+1000)*time.Microsecond)
			}
			if err := l.sleep(ctx, nil, nap); err != nil {
				yield(Info{}, operatorError("watch", name, err))
				return
			}
		}
	}
}

func changed(a, b *Info) bool {
	if a.State == StateExpired && b.State == StateExpired && a.Since.Equal(b.Since) {
		return false // it was cleaned up
	}
	return a.State != b.State || a.Token != b.Token || string(a.Value) != string(b.Value)
}
