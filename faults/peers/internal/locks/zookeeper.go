//go:build linux

package locks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sqllock/sqllock/faults/internal/server"
)

// zookeeper returns the recipe of ZooKeeper as go-zookeeper has it.
func zookeeper() System {
	return System{
		Name: "zookeeper", Server: server.ZooKeeper,
		Token:  "the sequence number of the node",
		Knows:  "`Conn.State` and `SessionID`: the client has seen no end of the session",
		Claims: "the recipe: “at any snapshot in time no two clients think they hold the same lock”",
		Open: func(_ context.Context, s Site) (Client, error) {
			return &zookeeperClient{s, make([]*zk.Conn, s.Workers)}, nil
		},
		Clock: zookeeperTime,
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func zkConnect(s Site) (*zk.Conn, error) {
	conn, _, err := zk.Connect([]string{s.Addr}, s.TTL, zk.WithLogger(quiet{}))
	return conn, err
}

// zookeeperTime creates a node and returns its time of creation on the server.
func zookeeperTime(_ context.Context, s Site) (time.Time, error) {
	conn, err := zkConnect(s)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	path, err := conn.CreateProtectedEphemeralSequential("/clock-", nil, zk.WorldACL(zk.PermAll))
	if err != nil {
		return time.Time{}, err
	}
	_, stat, err := conn.Exists(path)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(stat.Ctime), nil
}

// zookeeperClient has a session for each worker. A Lock that fails leaves its node
// behind, which keeps the name for as long as the session lives: so that is ended.
type zookeeperClient struct {
	site  Site
	conns []*zk.Conn // by worker; each worker uses its own
}

// Lock does not know of ctx once it waits, as the library has none.
func (c *zookeeperClient) Lock(ctx context.Context, worker int, name string) (Held, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if c.conns[worker] == nil {
		conn, err := zkConnect(c.site)
		if err != nil {
			return nil, err
		}
		c.conns[worker] = conn
	}
	conn := c.conns[worker]
	lock := zk.NewLock(conn, "/"+name, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		c.drop(worker)
		return nil, err
	}
	session := conn.SessionID()
	token, err := sequence(conn, session, "/"+name)
	if err != nil {
		c.drop(worker)
		return nil, err
	}
	return &zookeeperLock{lock, conn, session, token, func() { c.drop(worker) }}, nil
}

// sequence returns the number of the first node, which is the holder's. The library does
// not return it.
func sequence(conn *zk.Conn, session int64, dir string) (int64, error) {
	nodes, _, err := conn.Children(dir)
	if err != nil {
		return 0, err
	}
	first, node := int64(-1), ""
	for _, n := range nodes {
		number, err := strconv.ParseInt(n[strings.LastIndexByte(n, '-')+1:], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("node %q: %w", n, err)
		}
		if node == "" || number < first {
			first, node = number, n
		}
	}
	exists, stat, err := conn.Exists(dir + "/" + node)
	if err != nil {
		return 0, err
	}
	if !exists || stat.EphemeralOwner != session {
		return 0, errors.New("the lock was lost before it could be used")
	}
	return first + 1, nil // the first node has the number 0, which is no token here
}

// drop ends a session, and with it its nodes.
func (c *zookeeperClient) drop(worker int) {
	if conn := c.conns[worker]; conn != nil {
		conn.Close()
		c.conns[worker] = nil
	}
}

func (c *zookeeperClient) Close() error {
	for worker := range c.conns {
		c.drop(worker)
	}
	return nil
}

type zookeeperLock struct {
	lock    *zk.Lock
	conn    *zk.Conn
	session int64
	token   int64
	drop    func()
}

func (l *zookeeperLock) Token() int64 { return l.token }

// Holds asks for the session too: the client makes a new one when one has expired.
func (l *zookeeperLock) Holds(context.Context) bool {
	return l.conn.State() == zk.StateHasSession && l.conn.SessionID() == l.session
}

func (l *zookeeperLock) Unlock(context.Context) error {
	err := l.lock.Unlock()
	if err != nil {
		l.drop()
	}
	return err
}
