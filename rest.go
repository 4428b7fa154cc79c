package sqllock

import "time"

// restAfter is for how long, and up to twice that, nothing must be held before the
// mode may rest.
const restAfter = time.Second

// stir notes that the mode was used, without a lease to keep for it.
func (k *keeper) stir() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) == 0 {
		k.planRest()
	}
}

// planRest lets the mode rest in a while; the caller holds mu.
func (k *keeper) planRest() {
	if k.rest != never { // to read the clock each time would show
		k.used = true
		return
	}
	k.used = false
	k.rest = k.clock.Now() + restAfter
	k.lookAt(k.rest)
}

// takeRest reports that nothing has been kept for long enough; the caller holds
// mu.
func (k *keeper) takeRest(now time.Duration) bool {
	switch {
	case len(k.kept) > 0:
		k.rest = never
	case k.rest <= now && k.used:
		k.used = false
		k.rest = now + restAfter
	case k.rest <= now:
		k.rest = never
		return true
	}
	k.next = min(k.next, k.rest)
	return false
}
