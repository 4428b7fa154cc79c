//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// Where there are no process groups only the command itself is ended, not what it
// has started.

func apart(*exec.Cmd)                 {}
func detach(*exec.Cmd)                {}
func terminate(p *os.Process) error   { return p.Kill() }
func kill(p *os.Process)              { _ = p.Kill() }
func exitCode(s *os.ProcessState) int { return s.ExitCode() }
