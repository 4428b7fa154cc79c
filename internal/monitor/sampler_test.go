package monitor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/monitor"
)

func TestATermIsSeenAsLostIfItsHolderWasSilentAndItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(1700000000+int64(second), 0) }
	held := func(token int64, since, now, until int) sqllock.Info {
		return sqllock.Info{Name: "k", State: sqllock.StateHeld, Token: token, Label: "l", Since: at(since), Now: at(now), Until: at(until)}
	}
	expired := held(1, 0, 31, 30)
	expired.State = sqllock.StateExpired
	session := held(1, 0, 10, 0)
	session.Until = time.Time{}
	for what, c := range map[string]struct {
		seen []sqllock.Info
		lost string
	}{
		"renewed and unlocked":            {[]sqllock.Info{held(1, 0, 0, 30), held(1, 0, 15, 40), held(2, 35, 36, 66)}, ""},
		"seen long ago":                   {[]sqllock.Info{held(1, 0, 0, 30), held(2, 99, 99, 130)}, ""},
		"silent, and unlocked in time":    {[]sqllock.Info{held(1, 0, 0, 30), held(1, 0, 28, 30), held(2, 29, 30, 60)}, ""},
		"silent, and renewed in time":     {[]sqllock.Info{held(1, 0, 0, 30), held(1, 0, 28, 30), held(1, 0, 30, 58), held(2, 31, 32, 62)}, ""},
		"silent, and taken over":          {[]sqllock.Info{held(1, 0, 0, 30), held(1, 0, 28, 30), held(2, 31, 32, 62)}, "its lease expired, and another caller got the name"},
		"expired":                         {[]sqllock.Info{held(1, 0, 0, 30), expired}, "its lease expired"},
		"expired and seen twice":          {[]sqllock.Info{held(1, 0, 0, 30), expired, expired}, "its lease expired"},
		"kept by a session, then another": {[]sqllock.Info{session, session, held(2, 31, 32, 62)}, ""},
	} {
		if got := strings.Join(monitor.Losses(c.seen), ", "); got != c.lost {
			t.Errorf("%s: lost %q, want %q", what, got, c.lost)
		}
	}
}
