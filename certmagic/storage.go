// Package certmagiclock gives CertMagic, the library of Caddy for certificates, locks of package
// sqllock. A [Storage] adds them to any storage of CertMagic: certificates stay where they are, and
// the processes of a cluster agree in a database on who obtains which certificate.
package certmagiclock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// Storage is a storage of CertMagic with locks in a database. It is made by [New]. Its methods may
// be called at the same time, if those of the inner storage may.
//
// Only the methods of certmagic.Storage are those of the inner storage. What else that one
// implements, apart from locks, CertMagic does not see.
type Storage struct {
	certmagic.Storage // that keeps certificates

	locks  *sqllock.Locker
	prefix string
	opts   []sqllock.LockOption

	mu      sync.Mutex
	holders map[string]*holder // by the name that CertMagic uses
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// A holder is a goroutine of this process that has locked a name, or is about to. There is one for
// each name: CertMagic unlocks by name, so that a second one could unlock what the first has
// locked, after a loss.
type holder struct {
	lease *sqllock.Lease // nil while it waits, or unlocks
	done  chan struct{}  // closed when the next may lock the name
}

// New returns a Storage that keeps certificates in inner and locks in a database. The locks of
// inner are not used any more: all processes of the cluster must change at the same time.
//
// The name of a lock is the prefix, which may be empty, and the name that CertMagic gives it. If
// that is longer than 255 bytes, the end of it is replaced by a hash. The options are those of
// [sqllock.Locker.TryLock], such as [sqllock.TTL]. [sqllock.Wait] and [sqllock.Tries] are refused,
// because TryLock and RenewLockLease do not wait; the context bounds the wait of Lock.
//
// New runs no SQL. It returns [sqllock.ErrInvalidOption] if inner, locks or an option is nil, or if
// an option is out of bounds or does not apply, and [sqllock.ErrInvalidName] if no name can begin
// with the prefix, which has at most 100 bytes.
func New(inner certmagic.Storage, locks *sqllock.Locker, prefix string, opts ...sqllock.LockOption) (*Storage, error) {
	switch {
	case inner == nil:
		return nil, fmt.Errorf("certmagiclock: %w", driver.NilError("certmagic.Storage"))
	case locks == nil:
		return nil, fmt.Errorf("certmagiclock: %w", driver.NilError("*sqllock.Locker"))
	case len(prefix) > maxPrefix:
		return nil, fmt.Errorf("certmagiclock: %w: the prefix has %d bytes, more than %d", sqllock.ErrInvalidName, len(prefix), maxPrefix)
	}
	if err := driver.CheckName(prefix + "a"); err != nil {
		return nil, fmt.Errorf("certmagiclock: %w", err)
	}
	// TryLock checks the options first, then the name, and both before any SQL.
	if _, err := locks.TryLock(context.Background(), "", opts...); !errors.Is(err, sqllock.ErrInvalidName) {
		return nil, fmt.Errorf("certmagiclock: %w", err)
	}
	return &Storage{Storage: inner, locks: locks, prefix: prefix, opts: slices.Clone(opts), holders: make(map[string]*holder)}, nil
}

// Lock implements certmagic.Locker. It waits until it holds the name, or ctx ends. The lease is
// renewed until Unlock, however long CertMagic tries. If the lease is lost, CertMagic cannot be
// interrupted: see RenewLockLease and Unlock.
func (s *Storage) Lock(ctx context.Context, name string) error {
	if err := driver.CheckContext(ctx); err != nil {
		return fmt.Errorf("certmagiclock: lock %q: %w", name, err)
	}
	for {
		h, other := s.reserve(name)
		if h != nil {
			lease, err := s.locks.Lock(sqllock.WithoutOwner(ctx), s.nameOf(name), s.opts...)
			return s.complete(name, h, lease, err)
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return fmt.Errorf("certmagiclock: lock %q: this process holds it: %w", name, context.Cause(ctx))
		}
	}
}

// TryLock implements certmagic.TryLocker. It returns false and nil if another process, or another
// goroutine of this one, holds the name.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	h, _ := s.reserve(name)
	if h == nil {
		return false, nil
	}
	lease, err := s.locks.TryLock(sqllock.WithoutOwner(ctx), s.nameOf(name), s.opts...)
	err = s.complete(name, h, lease, err)
	if errors.Is(err, sqllock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Unlock implements certmagic.Locker. It returns [sqllock.ErrNotHeld] if this process has not
// locked the name, and the errors of [sqllock.Lease.Unlock]. If the lease was lost, nothing is left
// to release, and the error is nil: the hook Lost tells of the loss. In each case the name can be
// locked again.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	h := s.holders[name]
	if h == nil || h.lease == nil {
		s.mu.Unlock()
		return fmt.Errorf("certmagiclock: unlock %q: %w", name, sqllock.ErrNotHeld)
	}
	lease := h.lease
	h.lease = nil
	s.mu.Unlock()
	defer s.leave(name, h)
	if err := lease.Unlock(ctx); !errors.Is(err, sqllock.ErrLost) {
		return err
	}
	return nil // there is nothing left to release, which CertMagic takes for success
}

// RenewLockLease implements certmagic.LockLeaseRenewer. A lease is renewed in the background until
// Unlock, so the duration has no effect. While the lease is held, RenewLockLease runs no SQL and
// returns nil.
//
// If the lease was lost, RenewLockLease takes the name again, without waiting. Nobody held the name
// in between, or others did: CertMagic then looks whether the certificate was obtained. If that
// fails, the error is a [*sqllock.LostError] and also that of [sqllock.Locker.TryLock], such as
// [sqllock.ErrHeld]. The error is [sqllock.ErrNotHeld] if this process has not locked the name.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	h, lease := s.holderOf(name)
	switch {
	case lease == nil:
		return fmt.Errorf("certmagiclock: renew %q: %w", name, sqllock.ErrNotHeld)
	case lease.Context().Err() == nil:
		return nil
	}
	// CertMagic meets an error of this method with the same call later, for 30 days.
	again, err := s.locks.TryLock(sqllock.WithoutOwner(ctx), s.nameOf(name), s.opts...)
	if err != nil {
		return fmt.Errorf("certmagiclock: renew %q: %w; and to lock it again: %w", name, context.Cause(lease.Context()), err)
	}
	s.mu.Lock()
	if h.lease == lease {
		h.lease = again
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return errors.Join(fmt.Errorf("certmagiclock: renew %q: %w", name, sqllock.ErrNotHeld), again.Unlock(ctx))
}

// holderOf returns the holder of a name in this process and its lease, or nil.
func (s *Storage) holderOf(name string) (*holder, *sqllock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holders[name]
	if h == nil {
		return nil, nil
	}
	return h, h.lease
}

// reserve makes the caller the holder of a name in this process, or returns the other one.
func (s *Storage) reserve(name string) (h, other *holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.holders[name]; other != nil {
		return nil, other
	}
	h = &holder{done: make(chan struct{})}
	s.holders[name] = h
	return h, nil
}

// complete notes the lease of a holder, or ends its reservation.
func (s *Storage) complete(name string, h *holder, lease *sqllock.Lease, err error) error {
	if err != nil {
		s.leave(name, h)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.lease = lease
	return nil
}

// leave lets the next goroutine lock a name.
func (s *Storage) leave(name string, h *holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, name)
	close(h.done)
}

// A name has at most maxName bytes. Of a longer one, what is left beside a hash is kept.
const (
	maxName   = 255
	maxPrefix = 100
)

// nameOf returns the name of the lock.
func (s *Storage) nameOf(name string) string {
	full := s.prefix + name
	if len(full) <= maxName {
		return full
	}
	hash := sha256.Sum256([]byte(name))
	end := "/" + hex.EncodeToString(hash[:])
	return strings.ToValidUTF8(full[:maxName-len(end)], "") + end
}
