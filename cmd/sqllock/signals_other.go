//go:build !unix

package main

import (
	"os"
	"syscall"
)

var (
	ending  = []os.Signal{os.Interrupt, syscall.SIGTERM}
	passing []os.Signal
)

func asksToEnd(os.Signal) bool { return true }

func (s *signals) suspend(bool) {}

func interruptGroup() {}
