package driver

import (
	"context"
	"time"
)

// ElectionStore is what elections need besides of a Store.
type ElectionStore interface {
	Proclaimer

	// Resume makes the requester the next holder of a name that somebody holds whose
	// owner and version the request names, past the queue, and past what that one had
	// asked for to be waited out after its end. It is a grant in all other things: the
	// version rises, and it is flushed. If the name has another holder by now, or none,
	// it is not granted, and nothing was changed.
	//
	// It waits for a row that somebody has locked, be it to guard the term that it
	// would end, for a second at most; the error then classifies as [Again].
	Resume(ctx context.Context, req ResumeRequest) (AcquireResult, error)
}

// Proclaimer changes what a holder has to say.
type Proclaimer interface {
	// Proclaim changes the value of a term that is held: name, acq and version match,
	// and it has not expired. It reports whether it did. It waits for a row that
	// somebody has locked, for a second at most; the error then classifies as [Again].
	Proclaim(ctx context.Context, req SetValueRequest) (bool, error)
}

// ResumeRequest asks for a name that the same owner holds by an earlier acquisition.
type ResumeRequest struct {
	Name    string
	Acq     ID // the new one
	Owner   string
	Version int64 // of the term that is to end
	TTL     time.Duration
	Value   []byte
}

// SetValueRequest asks for another value of one term; empty is none.
type SetValueRequest struct {
	Name    string
	Acq     ID
	Version int64
	Value   []byte
}
