package supervisor

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"strconv"
)

// Account returns as whom of names a server runs that root starts, since no server
// wants to be root: the first that the system knows. It is nil, which is the user of
// this process, if there is none, and if that is not root.
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
	return nil // the server says that it does not run as root
}

// FreePort returns a port of 127.0.0.1 that nobody listens on. It is outside of the range
// from which the systems take ports for clients: a server that is started again must
// find its port free.
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
