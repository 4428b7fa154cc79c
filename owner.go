package sqllock

import (
	"context"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

type ownerKey struct{}

// WithOwner returns a context in which Lock and its kin act for the owner id: 1
// to 255 bytes of valid UTF-8 without NUL, else they return [ErrInvalidOwner].
// Whoever locks a name that the same owner holds through the same Locker
// re-enters its lease instead of waiting for it.
//
// An owner is known within one Locker only. Two processes, or two Lockers, that
// use the same id exclude each other.
//
// Of a nil context it is nil, which whoever gets it next refuses.
func WithOwner(ctx context.Context, id string) context.Context {
	if ctx == nil {
		return nil
	}
	return context.WithValue(ctx, ownerKey{}, owner{id})
}

// WithoutOwner returns a context that carries neither an owner nor a lease:
// what locks with it excludes everybody else, also the code that called it. Of a nil
// context it is nil.
func WithoutOwner(ctx context.Context) context.Context {
	if ctx == nil {
		return nil
	}
	return withoutOwner{ctx}
}

type owner struct{ id string }

// ownerFrom returns the explicit owner that ctx carries, or "".
func ownerFrom(ctx context.Context) (string, error) {
	o, ok := ctx.Value(ownerKey{}).(owner)
	if !ok {
		return "", nil
	}
	if o.id == "" {
		return "", fmt.Errorf("%w: it is empty", ErrInvalidOwner)
	}
	if err := driver.CheckText(o.id); err != nil {
		return "", fmt.Errorf("%w: %.64q: %w", ErrInvalidOwner, o.id, err)
	}
	return o.id, nil
}

// withoutOwner hides owners and leases of the context below it. The rest,
// cancellation too, shines through.
type withoutOwner struct{ context.Context }

func (c withoutOwner) Value(key any) any {
	switch key.(type) {
	case ownerKey, leaseKey:
		return nil
	}
	return c.Context.Value(key)
}
