package contender

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/sqllock/sqllock/bench/internal/delay"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// retryEvery is the pause between two tries of contenders without a wake-up. It is the
// shortest that the helpers of their libraries suggest.
const retryEvery = time.Millisecond

// redis returns the locks in Redis, without persistence and with a flush before each
// reply.
func redis() []Contender {
	return []Contender{
		{Name: "redislock", Server: server.Redis, Waits: true, Open: openRedislock(server.Redis)},
		{Name: "redislock/always", Server: server.RedisAlways, Durable: true, Waits: true, Open: openRedislock(server.RedisAlways)},
		{Name: "rueidis", Server: server.Redis, Open: openRueidis(server.Redis)},
		{Name: "rueidis/always", Server: server.RedisAlways, Durable: true, Open: openRueidis(server.RedisAlways)},
		{Name: "rueidislock", Server: server.Redis, Waits: true, OnlyWaits: true, Open: openRueidislock},
		{Name: "redsync", Server: server.Redis, Waits: true, Open: openRedsync},
	}
}

// goRedis opens the client of redislock and redsync with more connections than
// its default of ten for each core.
func goRedis(s Site, name string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: s.Addrs[name], PoolSize: redisConns, PoolTimeout: time.Minute, Dialer: delay.Dialer(s.Delay),
	})
}

// redisConns is as many as the SQL contenders have.
const redisConns = 64

type redislockClient struct {
	client *goredis.Client
	locks  *redislock.Client
	prefix string
	opts   *redislock.Options
}

func openRedislock(name string) func(context.Context, Site) (Client, error) {
	return func(_ context.Context, s Site) (Client, error) {
		client := goRedis(s, name)
		opts := &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryEvery)}
		return &redislockClient{client, redislock.New(client), s.Database, opts}, nil
	}
}

func (c *redislockClient) Lock(ctx context.Context, _ int, name string) (Lock, error) {
	l, err := c.locks.Obtain(ctx, c.prefix+name, ttl, c.opts)
	return redislockLock{l}, err
}

func (c *redislockClient) Close() error { return c.client.Close() }

type redislockLock struct{ *redislock.Lock }

func (l redislockLock) Unlock(ctx context.Context) error { return l.Release(ctx) }

// release deletes a key if it has the holder's value still.
var release = rueidis.NewLuaScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

var (
	errHeld     = errors.New("somebody else holds the name")
	errReleased = errors.New("the lock was gone")
)

// rueidisClient sends SET NX PX and a script for the release, by hand: the least
// that a lock in Redis can do. rueidis gathers the commands of concurrent callers.
type rueidisClient struct {
	client rueidis.Client
	prefix string
	id     string
}

func openRueidis(name string) func(context.Context, Site) (Client, error) {
	return func(_ context.Context, s Site) (Client, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addrs[name]}, DisableCache: true,
			DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return delay.Dialer(s.Delay)(ctx, "tcp", addr)
			},
		})
		if err != nil {
			return nil, err
		}
		return &rueidisClient{client, s.Database, strconv.FormatUint(rand.Uint64(), 36)}, nil
	}
}

func (c *rueidisClient) Lock(ctx context.Context, _ int, name string) (Lock, error) {
	key, value := c.prefix+name, c.id+strconv.FormatUint(rand.Uint64(), 36)
	err := c.client.Do(ctx, c.client.B().Set().Key(key).Value(value).Nx().Px(ttl).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil, errHeld
	}
	return &rueidisLock{c, key, value}, err
}

func (c *rueidisClient) Close() error {
	c.client.Close()
	return nil
}

type rueidisLock struct {
	client     *rueidisClient
	key, value string
}

func (l *rueidisLock) Unlock(ctx context.Context) error {
	n, err := release.Exec(ctx, l.client.client, []string{l.key}, []string{l.value}).AsInt64()
	if err == nil && n != 1 {
		return errReleased
	}
	return err
}

// rueidislockClient is the lock of the rueidis project. It wakes its waiters with
// invalidation messages. It uses one key instead of three, because there is one server.
type rueidislockClient struct {
	locker rueidislock.Locker
	prefix string
}

func openRueidislock(_ context.Context, s Site) (Client, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addrs[server.Redis]}},
		KeyMajority:  1, KeyValidity: ttl,
	})
	if err != nil {
		return nil, err
	}
	return &rueidislockClient{locker, s.Database}, nil
}

func (c *rueidislockClient) Lock(ctx context.Context, _ int, name string) (Lock, error) {
	_, cancel, err := c.locker.WithContext(ctx, c.prefix+name)
	return cancelLock(cancel), err
}

func (c *rueidislockClient) Close() error {
	c.locker.Close()
	return nil
}

type cancelLock context.CancelFunc

func (l cancelLock) Unlock(context.Context) error {
	l()
	return nil
}

type redsyncClient struct {
	client *goredis.Client
	locks  *redsync.Redsync
	prefix string
}

func openRedsync(_ context.Context, s Site) (Client, error) {
	client := goRedis(s, server.Redis)
	return &redsyncClient{client, redsync.New(redsyncpool.NewPool(client)), s.Database}, nil
}

func (c *redsyncClient) Lock(ctx context.Context, _ int, name string) (Lock, error) {
	m := c.locks.NewMutex(c.prefix+name, redsync.WithExpiry(ttl), redsync.WithTries(1<<30), redsync.WithRetryDelay(retryEvery))
	return redsyncLock{m}, m.LockContext(ctx)
}

func (c *redsyncClient) Close() error { return c.client.Close() }

type redsyncLock struct{ *redsync.Mutex }

func (l redsyncLock) Unlock(ctx context.Context) error {
	ok, err := l.UnlockContext(ctx)
	if err == nil && !ok {
		return errReleased
	}
	return err
}
