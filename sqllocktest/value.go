package sqllocktest

import (
	"bytes"
	"fmt"

	"github.com/sqllock/sqllock"
)

func testValue(e *env) {
	e.losable()
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	shows := func(when, want string) {
		e.Helper()
		if info := e.inspect(l, name); string(info.Value) != want {
			e.Errorf("%s the value is %q, want %q", when, info.Value, want)
		}
	}
	lease := e.lock(l, name, sqllock.Value([]byte("first")))
	shows("while it is held", "first")
	e.unlock(lease)
	shows("after an Unlock", "")

	crashing := e.looseLocker(e.handle(), &Options{TTL: long})
	e.crash(crashing, e.lock(crashing, name, sqllock.Value([]byte("second"))))
	shows("when the lease has expired", "second")
	lease = e.lock(l, name)
	shows("while the next one holds the name", "")
	e.unlock(lease)

	lease = e.lock(l, name, sqllock.Value([]byte("third")))
	if info, err := l.ForceUnlock(e.ctx(), name); err != nil || string(info.Value) != "third" {
		e.Errorf("ForceUnlock = %+v, %v", info, err)
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	shows("after a ForceUnlock", "")
}

func testValueBytes(e *env) {
	l := e.locker(&Options{TTL: long})
	every := make([]byte, 64<<10)
	for i := range every {
		every[i] = byte(i + i>>8)
	}
	for _, value := range [][]byte{nil, {}, {0}, []byte(`\x00'"\`), []byte("\xff\xfe"), every} {
		lease := e.lock(l, e.name("k"), sqllock.Value(value))
		if info := e.inspect(l, lease.Name()); !bytes.Equal(info.Value, value) {
			e.Errorf("a value of %d bytes came back as one of %d: %s", len(value), len(info.Value), fmt.Sprintf("%.20q", info.Value))
		}
		e.unlock(lease)
	}
}
