package supervisor

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"strconv"
)

// Account returns the user for a server that root starts: the first of names that the
// system has. No server accepts root. Account returns nil, the user of this process, if
// there is no such user or this process is not root.
func Account(names []string) *User {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &User{UID: uint32(uid), GID: uint32(gid)}
		}
	}
	return nil // the server then reports that it does not run as root
}

// FreePort returns a free port of 127.0.0.1. The port is outside of the range that the
// systems use for clients, so that it is still free when a server is started again.
func FreePort() (int, error) {
	for range 100 {
		port := 15000 + rand.IntN(15000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found")
}
