package main

// inSchedules is the catcher of mistakes that show only if several things happen in a certain order.
var inSchedules = test("./internal/schedule", "TestSchedules")

// scheduled are mistakes in the Go code that the schedules find; two of them they have found in it.
var scheduled = []bug{
	{"the deadline of a grant counts from its reply", []edit{
		{"acquisition.go", "min(t.latestEnd, r.Before+clock.Trust(left))", "min(t.latestEnd, r.After+clock.Trust(left))"},
	}, inSchedules},
	{"the deadline of a renewal counts from its reply", []edit{
		{"keeper.go", "t.renewed(before, before+clock.Trust(ttl), atLimit)", "t.renewed(before, k.clock.Now()+clock.Trust(ttl), atLimit)"},
	}, inSchedules},
	{"the deadline after a hand-over is that of the whole TTL", []edit{
		{"acquisition.go", "left := min(t.ttl, r.Result.Remaining-beyond)", "left := min(t.ttl, t.ttl+beyond)"},
	}, inSchedules},
	{"a lease is trusted as long as its row lasts, without a margin", []edit{
		{"internal/clock/clock.go", "return ttl - ttl/100 - 2*time.Millisecond", "return ttl"},
	}, inSchedules},
	{"a LockDelay is trusted, too", []edit{
		{"acquisition.go", "beyond := max(a.req.TTL-t.ttl, 0)", "beyond := max(a.req.TTL-t.ttl, 0) * 0"},
		{"acquisition.go", "left := min(t.ttl, r.Result.Remaining-beyond)", "left := r.Result.Remaining - beyond"},
	}, inSchedules},
	{"a renewal that is known too late revives the lease", []edit{
		{"term.go", "if t.state != termLost && !late {", "if late = false; true {"},
	}, inSchedules},
	{"a term that is lost is renewed", []edit{
		{"sqllock.go", "func (l *Locker) termLost(t *term) {\n\tl.keeper.drop(t)\n", "func (l *Locker) termLost(t *term) {\n"},
	}, inSchedules},
	{"the keeper tells nobody that a deadline has passed", []edit{
		{"keeper.go", "\t\tt.expire()\n\t\tif t.remaining() <= 0 {", "\t\tif t.remaining() <= 0 {"},
	}, inSchedules},
	{"a renewal that fails is not repeated soon", []edit{
		{"keeper.go", "r.due = k.clock.Now() + k.retryPause(t.ttl, r.failures)", "r.due = k.clock.Now() + t.ttl"},
	}, inSchedules},
	{"a renewal whose row is locked is not repeated", []edit{
		{"keeper.go", "r.renewing, r.isolated, r.due = false, true, k.clock.Now()", "r.renewing, r.isolated, r.due = false, true, never"},
	}, inSchedules},
	{"an Unlock of one of two leases of a term releases the name", []edit{
		{"term.go", "last = t.count == 0\n", "last = t.count <= 1\n"},
	}, inSchedules},
	{"an Unlock of the last of two leases does not release the name", []edit{
		{"term.go", "\tt.leases = append(t.leases, l)\n\tt.count++", "\tt.leases = append(t.leases, l)\n\tt.count += len(t.leases)"},
	}, inSchedules},
	{"what a caller that has left is granted is kept", []edit{
		{"acquisition.go", "case r.Result.Granted: // if", "case r.Result.Granted && r.Result.Found: // if"},
	}, inSchedules},
	{"what a request without a reply was granted is kept", []edit{
		{"acquisition.go", "func (a *acquisition) abandon() {\n\tif a.unknown {", "func (a *acquisition) abandon() {\n\tif a.unknown && a.requests > 99 {"},
	}, inSchedules},
	{"the claim of a waiter that has left is kept", []edit{
		{"claim.go", "case c.requests > 0:\n\t\tcs.locker.cleanup.addOnce", "case c.requests > 99:\n\t\tcs.locker.cleanup.addOnce"},
	}, inSchedules},
	{"a cleanup ends with its first try, whatever that says", []edit{
		{"cleanup.go", "item.freed = item.freed || err == nil", "item.freed = true"},
		{"cleanup.go", "certain && item.freed {", "item.freed || certain {"},
	}, inSchedules},
	{"a cleanup ends with the first release, although a request may be under way", []edit{
		{"cleanup.go", "certain := c.certain || item.once", "certain := true"},
	}, inSchedules},
	{"a release that got no reply is taken for one", []edit{
		{"unlock.go", "if freed {\n\t\treturn nil\n\t}\n\treturn l.retryRelease(wait, t, sharedBatch, err)", "if freed || err != nil {\n\t\treturn nil\n\t}\n\treturn l.retryRelease(wait, t, sharedBatch, err)"},
	}, inSchedules},
	{"MaxHold bounds only the first deadline", []edit{
		{"term.go", "left := t.latestEnd - now; left <= t.ttl", "left := t.latestEnd - now; left < 0"},
	}, inSchedules},
	{"an Unlock forgets MinHold", []edit{
		{"unlock.go", "MinHold: t.keptFor(), Guarded: t.isGuarded(), Shared: t.together(), Permit: t.permit,", "Guarded: t.isGuarded(), Shared: t.together(), Permit: t.permit,"},
	}, inSchedules},
	{"a renewal leaves LockDelay out", []edit{
		{"keeper.go", "TTL: ttl + t.lockDelay,", "TTL: ttl,"},
	}, inSchedules},
	{"a detached term is still trusted if it was lost meanwhile", []edit{
		{"detach.go", "\tif unknown {\n\t\tl.cleanUpDetach(t, h.key())\n\t}", "\tif unknown {\n\t\tt.unknown = true\n\t}"},
	}, inSchedules},
	{"a term that was adopted lasts as long as the former one", []edit{
		{"acquisition.go", "t.deadline.Store(int64(min(t.latestEnd, r.Before+clock.Trust(left))))", "t.deadline.Store(int64(min(t.latestEnd, r.Before+clock.Trust(left))))\n\tif a.req.Adopts != (driver.ID{}) {\n\t\tt.deadline.Store(t.deadline.Load() + int64(left))\n\t}"},
	}, inSchedules},
	{"two requests clean up after a release that was not answered, one of them without MinHold", []edit{
		{"unlock.go", "if t.unknown && (err == nil || errors.Is(err, ErrLost)) {", "if t.unknown {"},
	}, test(".", "TestMinHoldCountsAlso")},
	{"a hand-over forgets MinHold", []edit{
		{"claim.go", "max(a.req.TTL-trusted+life, a.opts.minHold+a.opts.lockDelay)", "a.req.TTL - trusted + life"},
	}, test(".", "TestANameThatIsHandedOver")},
	{"LockAll keeps what it has when it fails", []edit{
		{"lockall.go", "if !done { // also if a driver panics\n\t\t\ta.free(ctx)", "if !done { // also if a driver panics"},
	}, inSchedules},
	{"Close does not wait for those who release", []edit{
		{"sqllock.go", "\tl.inflight.close()\n\tl.stopReaper()", "\tl.inflight.close()\n\tl.stop()\n\tl.stopReaper()"},
	}, inSchedules},
	{"a second waiter is not woken when the first has left", []edit{
		{"waiter.go", "case len(s.waiters) > 0:\n\t\ts.waiters[0].wakeUp()", "case len(s.waiters) > 0:"},
	}, inSchedules},
}
