package lockpg

import (
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watch calls gone, once, when the operating system says that the other side has
// closed a connection or that the connection is broken. It reads nothing from it:
// what has arrived stays for whoever uses the connection. stop must be called before
// the connection is closed, which would otherwise stay open; it returns when gone
// will not be called any more.
func watch(c net.Conn, gone func()) (stop func()) {
	copied := duplicate(c)
	if copied == nil {
		return func() {}
	}
	raw, err := copied.SyscallConn()
	if err != nil {
		_ = copied.Close()
		return func() {}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		over := false
		// The function is called again whenever something has arrived. One wake may
		// stand for several arrivals, of which the last is the end; so it is the state
		// that counts, not the wake.
		_ = raw.Read(func(fd uintptr) bool {
			over = closed(int32(fd))
			return over
		})
		if over {
			gone()
		}
	})
	return func() {
		_ = copied.Close() // ends the Read
		wg.Wait()
	}
}

// duplicate returns a second descriptor of a connection's socket, nil if it has none.
func duplicate(c net.Conn) *os.File {
	for { // below TLS
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = below.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	err = raw.Control(func(s uintptr) {
		fd, _ = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err != nil || fd < 0 {
		return nil
	}
	return os.NewFile(uintptr(fd), "session") // in the runtime's poller, because it does not block
}

// closed asks for the state of a socket, without waiting.
func closed(fd int32) bool {
	const over = unix.POLLRDHUP | unix.POLLHUP | unix.POLLERR
	p := []unix.PollFd{{Fd: fd, Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(p, 0)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n > 0 && p[0].Revents&over != 0
	}
}
