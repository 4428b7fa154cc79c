package termstore

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// The lock is free before the row says that its term has ended.
func TestAHolderThatLetsTheNameGoBecauseItWasAskedToHasNotExpired(t *testing.T) {
	term := Term{Exists: true, Now: 7, Holder: driver.Holder{Acq: driver.ID{1}, Version: 3}}
	if r := term.row(); !r.Held() || r.Ended == driver.EndedRevoked {
		t.Errorf("nobody has asked for the name: %+v", r)
	}
	term.Revoking = true
	if r := term.row(); r.Held() || r.Session || r.Ended != driver.EndedRevoked || r.Holder.Version != 3 {
		t.Errorf("the holder was asked for the name: %+v", r)
	}
	term.Alive = true
	if r := term.row(); !r.Held() || !r.Session {
		t.Errorf("the holder has not let it go yet: %+v", r)
	}
}
