package check

// count counts the events.
func (r *run) count() Counts {
	c := Counts{Acquisitions: len(r.leases)}
	for _, f := range r.faults {
		c.Faults += f.injections
	}
	for _, leases := range r.names {
		for i, l := range leases {
			if l.done != nil && l.done.Lost {
				c.Lost++
			}
			if i == 0 || leases[i-1].proc == l.proc {
				continue
			}
			c.HandOvers++
			if r.anyFault(l.ret-int64(r.rules.TTL), l.ret) {
				c.Recovering++
			}
			if r.anyFault(l.ret, l.ret+1) {
				c.Active++
			}
		}
	}
	for _, all := range r.waiters("wait") {
		c.Inversions += inversions(all)
	}
	return c
}

// inversions counts the writers that were served before a writer that had come clearly
// earlier.
func inversions(all []wait) int {
	const clearly = 100e6
	n := 0
	for i, a := range all { // in the order of their calls
		if a.Shared || !a.granted {
			continue
		}
		for _, b := range all[i+1:] {
			if b.T > a.ret {
				break
			}
			if !b.Shared && b.granted && b.T > a.T+clearly && b.ret < a.ret {
				n++
			}
		}
	}
	return n
}
