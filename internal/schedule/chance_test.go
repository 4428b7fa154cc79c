//go:build !seeded

package schedule

// seedRuntime does nothing: what the runtime draws is different each time.
func seedRuntime(uint64) {}

const isSeeded = false
