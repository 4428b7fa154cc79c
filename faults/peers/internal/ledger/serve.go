package ledger

import (
	"net"
	"net/rpc"
	"sync"
)

// Server lets other processes use registers, over a socket. Close ends it.
type Server struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// Serve serves registers on a Unix socket at path, until Close is called.
func Serve(path string, r *Registers) (*Server, error) {
	calls := rpc.NewServer()
	if err := calls.RegisterName(service, &remote{r}); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: l, conns: make(map[net.Conn]bool)}
	s.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // Close was called
			}
			if s.open(conn) {
				s.serving.Go(func() {
					calls.ServeConn(conn) // closes it
					s.forget(conn)
				})
			}
		}
	})
	return s, nil
}

func (s *Server) open(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) forget(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// Close ends all connections, and returns when nothing is served any more.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	return err
}

const service = "Ledger"

// remote has the methods of Registers in the form of package rpc.
type remote struct{ r *Registers }

// RegisterName is a register, with a token if it is the fenced one.
type RegisterName struct {
	Register, Name string
	Token          int64
}

func (s *remote) Read(p RegisterName, n *int64) error {
	*n = s.r.Read(p.Register, p.Name)
	return nil
}

func (s *remote) Announce(p RegisterName, ok *bool) error {
	*ok = s.r.Announce(p.Name, p.Token)
	return nil
}

func (s *remote) Write(w Write, ok *bool) error {
	*ok = s.r.Write(w)
	return nil
}

// Client uses the registers of another process. It is safe for concurrent use.
type Client struct{ calls *rpc.Client }

// Dial returns a client of the registers at path. Close ends it.
func Dial(path string) (*Client, error) {
	calls, err := rpc.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &Client{calls}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.calls.Close() }

// Read is as [Registers.Read].
func (c *Client) Read(register, name string) (n int64, err error) {
	err = c.calls.Call(service+".Read", RegisterName{Register: register, Name: name}, &n)
	return n, err
}

// Announce is as [Registers.Announce].
func (c *Client) Announce(name string, token int64) (ok bool, err error) {
	err = c.calls.Call(service+".Announce", RegisterName{Register: Fenced, Name: name, Token: token}, &ok)
	return ok, err
}

// Write is as [Registers.Write].
func (c *Client) Write(w Write) (ok bool, err error) {
	err = c.calls.Call(service+".Write", w, &ok)
	return ok, err
}
