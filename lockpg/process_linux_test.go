package lockpg_test

import "syscall"

// child has a process end with this one, and run as another user.
func child(user *[2]uint32) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if user != nil {
		attr.Credential = &syscall.Credential{Uid: user[0], Gid: user[1]}
	}
	return attr
}
