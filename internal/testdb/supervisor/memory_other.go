//go:build !linux

package supervisor

func hasMemory(string) bool { return false }
