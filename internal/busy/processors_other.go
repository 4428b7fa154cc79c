//go:build !linux

package busy

// watchProcessors watches nothing: a process cannot choose its processor.
func watchProcessors() []*watch { return nil }
