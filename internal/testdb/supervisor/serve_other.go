//go:build !unix

package supervisor

import "syscall"

// isSupported is false where servers cannot be started.
const isSupported = false

// serve is never reached: Start fails.
func serve() int { return 1 }

func ownSession() *syscall.SysProcAttr { return nil }
