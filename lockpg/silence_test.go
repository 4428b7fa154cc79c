package lockpg_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/lockpg"
)

func TestAHostThatVanishesIsNoticedAfterTheTTLAndSoonBeforeAnySQL(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{
		100 * time.Millisecond, time.Second, 1001 * time.Millisecond, 2500 * time.Millisecond, 30 * time.Second, 5 * time.Minute, time.Hour,
		24 * time.Hour,
	} {
		unconfirmed, idle, interval, count := lockpg.Silence(ttl)
		if unconfirmed < ttl || unconfirmed > ttl+time.Millisecond {
			t.Errorf("TTL %v: what was sent may stay unconfirmed for %v", ttl, unconfirmed)
		}
		probed := idle + time.Duration(count)*interval
		late := 2 * time.Second
		if ttl > 9*time.Hour { // more than a system waits before it begins
			late = ttl / 100
		}
		if probed < ttl || probed > ttl+late {
			t.Errorf("TTL %v: given up after %v: %v, and %d times %v", ttl, probed, idle, count, interval)
		}
		if idle < time.Second || idle > 32767*time.Second || interval < time.Second || count < 1 || count > 127 {
			t.Errorf("TTL %v: no system takes %v, %d times %v", ttl, idle, count, interval)
		}
	}
}
