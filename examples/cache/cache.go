package main

import (
	"sync"
	"time"
)

// cache plays Redis with one entry: all services see it, over a network. It is
// safe for concurrent use.
type cache struct {
	mu      sync.Mutex
	price   int
	expires time.Time // of the entry; in the past if there is none
}

// network is how long a request takes.
const network = time.Millisecond

func (c *cache) get() (price int, ok bool) {
	time.Sleep(network)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.price, time.Now().Before(c.expires)
}

func (c *cache) set(price int, keep time.Duration) {
	time.Sleep(network)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.price, c.expires = price, time.Now().Add(keep)
}

func (c *cache) delete() {
	time.Sleep(network)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires = time.Time{}
}
