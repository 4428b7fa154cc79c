//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// Without process groups, only the command itself is ended, not its children.

func apart(*exec.Cmd)                 {}
func detach(*exec.Cmd)                {}
func terminate(p *os.Process) error   { return p.Kill() }
func kill(p *os.Process)              { _ = p.Kill() }
func exitCode(s *os.ProcessState) int { return s.ExitCode() }
