package contender

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/sqllock/sqllock/bench/internal/delay"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// others returns the coordination services.
func others() []Contender {
	return []Contender{
		{Name: "etcd", Server: server.Etcd, Durable: true, Waits: true, Open: openEtcd},
		{Name: "zookeeper", Server: server.ZooKeeper, Durable: true, Waits: true, Open: openZooKeeper},
	}
}

// etcdClient has a session for each caller: two Mutexes of one session do not
// exclude each other. They share one connection, as etcd's client does it.
type etcdClient struct {
	client *clientv3.Client
	prefix string

	mu       sync.Mutex
	sessions map[int]*concurrency.Session
}

func openEtcd(_ context.Context, s Site) (Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + s.Addrs[server.Etcd]}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return delay.Dialer(s.Delay)(ctx, "tcp", addr)
		})},
	})
	if err != nil {
		return nil, err
	}
	return &etcdClient{client: client, prefix: s.Database, sessions: make(map[int]*concurrency.Session)}, nil
}

func (c *etcdClient) session(caller int) (*concurrency.Session, error) {
	c.mu.Lock()
	s := c.sessions[caller]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := concurrency.NewSession(c.client, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.sessions[caller] = s
	c.mu.Unlock()
	return s, nil
}

func (c *etcdClient) Lock(ctx context.Context, caller int, name string) (Lock, error) {
	s, err := c.session(caller)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, c.prefix+"/"+name)
	return m, m.Lock(ctx)
}

// Close lets the leases of the sessions expire: to revoke a thousand one by one
// would take longer than the server lives.
func (c *etcdClient) Close() error {
	for _, s := range c.sessions {
		s.Orphan()
	}
	return c.client.Close()
}

// zookeeperClient uses the recipe of go-zookeeper over one connection.
type zookeeperClient struct {
	conn   *zk.Conn
	prefix string
}

type noLogger struct{}

func (noLogger) Printf(string, ...any) {}

func openZooKeeper(_ context.Context, s Site) (Client, error) {
	conn, _, err := zk.Connect([]string{s.Addrs[server.ZooKeeper]}, ttl, zk.WithLogger(noLogger{}),
		zk.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return delay.Dialer(s.Delay)(ctx, network, addr)
		}))
	if err != nil {
		return nil, err
	}
	return &zookeeperClient{conn, "/" + s.Database}, nil
}

// Lock ignores ctx, as the library knows none.
func (c *zookeeperClient) Lock(_ context.Context, _ int, name string) (Lock, error) {
	l := zk.NewLock(c.conn, fmt.Sprintf("%s/%s", c.prefix, name), zk.WorldACL(zk.PermAll))
	return zookeeperLock{l}, l.Lock()
}

func (c *zookeeperClient) Close() error {
	c.conn.Close()
	return nil
}

type zookeeperLock struct{ *zk.Lock }

func (l zookeeperLock) Unlock(context.Context) error { return l.Lock.Unlock() }
