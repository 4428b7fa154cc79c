// Command cache keeps a price in a cache and in a database, in four ways, and
// counts the reads that return an old one.
//
//	go run ./examples/cache [--unsafe] [--dsn postgres://user@localhost/app]
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
)

func main() {
	demo.Main(demo.Example{
		About: `Reads a price through a cache while it is changed, and counts the reads that
return a price that was not the newest any more when they began. With --unsafe,
it tries three ways of keeping the cache up to date that need no lock, and that
promise less.
`,
		Workers: 3,
		Tables: []string{
			`CREATE TABLE product (id BIGINT PRIMARY KEY, price BIGINT NOT NULL)`,
			`INSERT INTO product VALUES (1, 0)`,
		},
		Run: run,
	})
}

// The times that things take.
const (
	rendering = 2 * time.Millisecond  // the cached value is made from the row
	writing   = 5 * time.Millisecond  // until the change is committed
	delay     = 10 * time.Millisecond // of the second delete
	expiry    = 15 * time.Millisecond // of an entry that is not deleted
	anyway    = 10 * time.Minute      // expiry of an entry that is deleted
)

// strategy is a way to keep the cache up to date.
type strategy struct {
	name  string
	read  func(*service, context.Context) (price int, err error)
	write func(s *service, ctx context.Context, price int) error
	keep  time.Duration // an entry in the cache
}

var (
	without = []strategy{
		{"delete-then-write", (*service).read, (*service).deleteThenWrite, anyway},
		{"delayed double delete", (*service).read, (*service).doubleDelete, anyway},
		{"expiry", (*service).read, (*service).update, expiry},
	}
	with = []strategy{
		{"lock", (*service).readLocked, (*service).writeLocked, anyway},
	}
)

func run(ctx context.Context, d *demo.Demo) (string, error) {
	strategies := with
	if d.Unsafe {
		strategies = without
	}
	var all tally
	fmt.Printf("%-24s%8s%8s%8s%12s\n", "", "writes", "reads", "stale", "for up to")
	for _, s := range strategies {
		t, err := measure(ctx, d, s)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("%-24s%8d%8d%8d%12v\n", s.name, writes, t.reads, t.stale, t.longest.Round(time.Millisecond))
		all.add(t)
	}
	if all.stale > 0 || all.reads == 0 {
		return "", demo.Wrong("%d of %d reads were stale", all.stale, all.reads)
	}
	return fmt.Sprintf("none of %d reads was stale", all.reads), nil
}

// service is one of those that read and write the price.
type service struct {
	*demo.Worker
	cache   *cache
	history *history
	keep    time.Duration
}

// read takes the price from the cache if it is there.
func (s *service) read(ctx context.Context) (int, error) {
	if price, ok := s.cache.get(); ok {
		return price, nil
	}
	return s.fill(ctx)
}

// fill takes the price from the database and puts it into the cache, too late
// perhaps: it may have been changed, and deleted there, in between.
func (s *service) fill(ctx context.Context) (price int, err error) {
	if err := s.DB.QueryRowContext(ctx, `SELECT price FROM product WHERE id = 1`).Scan(&price); err != nil {
		return 0, err
	}
	time.Sleep(rendering)
	s.cache.set(price, s.keep)
	return price, nil
}

// update changes the price and nothing in the cache.
func (s *service) update(ctx context.Context, price int) error {
	time.Sleep(writing)
	_, err := s.DB.ExecContext(ctx, `UPDATE product SET price = ? WHERE id = 1`, price)
	if err == nil {
		s.history.committed()
	}
	return err
}

// deleteThenWrite leaves time for a reader to put the old price back, where it
// stays until the next write.
func (s *service) deleteThenWrite(ctx context.Context, price int) error {
	s.cache.delete()
	return s.update(ctx, price)
}

// doubleDelete deletes an old value again after a while. Until then readers get it, and a
// slower reader puts it back anyway.
func (s *service) doubleDelete(ctx context.Context, price int) error {
	if err := s.deleteThenWrite(ctx, price); err != nil {
		return err
	}
	time.Sleep(delay)
	s.cache.delete()
	return nil
}

// key is the name of the lock on the price.
const key = "product/1"

// readLocked fills the cache under the lock, so that no writer comes between reading and
// filling. It reads the cache without the lock.
func (s *service) readLocked(ctx context.Context) (price int, err error) {
	if price, ok := s.cache.get(); ok {
		return price, nil
	}
	err = s.Locks.Do(ctx, key, func(ctx context.Context, _ *sqllock.Lease) error {
		price, err = s.read(ctx) // another process may have filled it during the wait
		return err
	})
	return price, err
}

// writeLocked deletes and writes under the lock, so that no reader fills the cache in
// between.
//
// A process that is paused for longer than its lease lasts may still write or fill late.
// Let entries expire too, so that this does no harm for long.
func (s *service) writeLocked(ctx context.Context, price int) error {
	return s.Locks.Do(ctx, key, func(ctx context.Context, _ *sqllock.Lease) error {
		return s.deleteThenWrite(ctx, price)
	})
}
