package otellock

// Open is how many leases have a span that has not ended.
func (t *Telemetry) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.spans)
}
