//go:build linux

package locks

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sqllock/sqllock/faults/internal/server"
)

// etcd returns the Mutex of etcd's own client.
func etcd() System {
	return System{
		Name: "etcd", Server: server.Etcd,
		Token:   "the create revision of the key",
		Knows:   "`Session.Done`, which the keep-alive closes",
		Claims:  "a lock that rests on a lease “cannot provide mutual exclusion to processes”: check versions at the resource",
		NoClock: "a Go program reads the clock without the C library, so that libfaketime does not reach it; and it counts leases on the monotonic clock",
		Open: func(_ context.Context, s Site) (Client, error) {
			client, err := clientv3.New(clientv3.Config{
				Endpoints: []string{"http://" + s.Addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
			})
			if err != nil {
				return nil, err
			}
			return &etcdClient{client, s, make([]*concurrency.Session, s.Workers)}, nil
		},
	}
}

// etcdClient has a session for each worker: two Mutexes of one session do not exclude
// each other.
type etcdClient struct {
	client   *clientv3.Client
	site     Site
	sessions []*concurrency.Session // by worker; each worker uses its own
}

func (c *etcdClient) Lock(ctx context.Context, worker int, name string) (Held, error) {
	s, err := c.session(ctx, worker)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, "/"+name)
	if err := m.Lock(ctx); err != nil {
		c.drop(worker)
		return nil, err
	}
	return &etcdLock{m, s, func() { c.drop(worker) }}, nil
}

// session returns the worker's session, a new one if that has ended. The context bounds
// the call only: the session lives on.
func (c *etcdClient) session(ctx context.Context, worker int) (*concurrency.Session, error) {
	if s := c.sessions[worker]; s != nil {
		if !isDone(s) {
			return s, nil
		}
		c.drop(worker)
	}
	lease, err := c.client.Grant(ctx, int64(c.site.TTL.Seconds()))
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c.client, concurrency.WithTTL(int(c.site.TTL.Seconds())), concurrency.WithLease(lease.ID))
	if err != nil {
		return nil, fmt.Errorf("etcd session: %w", err)
	}
	c.sessions[worker] = s
	return s, nil
}

// drop ends a session after an error: it may have left something behind.
func (c *etcdClient) drop(worker int) {
	if s := c.sessions[worker]; s != nil {
		_ = s.Close() // if it cannot revoke, the lease expires
		c.sessions[worker] = nil
	}
}

func (c *etcdClient) Close() error {
	for worker := range c.sessions {
		c.drop(worker)
	}
	return c.client.Close()
}

func isDone(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

type etcdLock struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
	drop    func()
}

// Token reads the revision from the comparison that the Mutex makes for transactions.
// There is no other way to get it.
func (l *etcdLock) Token() int64 {
	owner := pb.Compare(l.mutex.IsOwner())
	return owner.GetCreateRevision()
}

func (l *etcdLock) Holds(context.Context) bool { return !isDone(l.session) }

func (l *etcdLock) Unlock(ctx context.Context) error {
	err := l.mutex.Unlock(ctx)
	if err != nil {
		l.drop()
	}
	return err
}
