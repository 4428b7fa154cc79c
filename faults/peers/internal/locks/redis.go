//go:build linux

package locks

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/sqllock/sqllock/faults/internal/server"
)

// retryEvery is the pause between two tries of a waiter: redislock has no wake-up.
const retryEvery = 10 * time.Millisecond

// redislocks returns redislock on one of the Redis servers.
func redislocks(name string) System {
	s := System{
		Name: "redislock/redis", Server: name,
		Knows:  "`Lock.TTL`, which asks Redis each time: there is no signal, and nothing is renewed",
		Claims: "“simplified distributed locking” with a TTL; of fencing nothing is said",
		Open: func(_ context.Context, s Site) (Client, error) {
			c := goRedis(s)
			return &redislockClient{c, redislock.New(c), s.TTL}, nil
		},
		Clock: redisClock,
	}
	if name == server.RedisAlways {
		// The two settings differ only when the server is killed.
		s.Name, s.Only = "redislock/redis-always", "server-kill"
	}
	return s
}

func redisClock(ctx context.Context, s Site) (time.Time, error) {
	c := goRedis(s)
	defer func() { _ = c.Close() }()
	return c.Time(ctx).Result()
}

func goRedis(s Site) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: s.Addr, PoolSize: max(conns, 2*s.Workers)})
}

type redislockClient struct {
	client *goredis.Client
	locks  *redislock.Client
	ttl    time.Duration
}

func (c *redislockClient) Lock(ctx context.Context, _ int, name string) (Held, error) {
	l, err := c.locks.Obtain(ctx, name, c.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryEvery)})
	if err != nil {
		return nil, err
	}
	return redislockLock{l}, nil
}

func (c *redislockClient) Close() error { return c.client.Close() }

// The token of a redislockLock is a random text. It distinguishes terms, but has no
// order.
type redislockLock struct{ *redislock.Lock }

func (l redislockLock) Token() int64 { return 0 }

func (l redislockLock) Holds(ctx context.Context) bool {
	left, err := l.TTL(ctx)
	return err == nil && left > 0
}

func (l redislockLock) Unlock(ctx context.Context) error { return l.Release(ctx) }

// rueidislocks returns the lock of the rueidis project. It uses one key instead of three, because
// there is one server.
func rueidislocks() System {
	return System{
		Name: "rueidislock/redis", Server: server.Redis,
		Knows:  "the context of the lock, which ends when the key has gone or a renewal was too late",
		Claims: "“a Redis Distributed Lock Pattern enhanced by Client Side Caching”; of fencing nothing is said",
		Clock:  redisClock,
		Open: func(_ context.Context, s Site) (Client, error) {
			l, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}}, KeyMajority: 1, KeyValidity: s.TTL,
			})
			if err != nil {
				return nil, err
			}
			return rueidislockClient{l}, nil
		},
	}
}

type rueidislockClient struct{ locker rueidislock.Locker }

func (c rueidislockClient) Lock(ctx context.Context, _ int, name string) (Held, error) {
	held, release, err := c.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidisLock{held, release}, nil
}

func (c rueidislockClient) Close() error {
	c.locker.Close()
	return nil
}

type rueidisLock struct {
	held    context.Context
	release context.CancelFunc
}

func (l rueidisLock) Token() int64 { return 0 }

func (l rueidisLock) Holds(context.Context) bool { return l.held.Err() == nil }

func (l rueidisLock) Unlock(context.Context) error {
	l.release()
	return nil
}
