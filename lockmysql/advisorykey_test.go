package lockmysql_test

import (
	"fmt"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestNamesOfOneHashWaitForEachOtherAndNoMore(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		same := lockmysql.Keys(func(string) [16]byte { return [16]byte{7} })
		a, b := advisory.on(t, f.Open(t), sessionTTL, same), advisory.on(t, f.Open(t), sessionTTL, same)
		one, other := request("one"), request("other")
		s, res := a.lock(t, one)
		if a.Key("one") != b.Key("other") {
			t.Error("the keys differ")
		}
		if denied := b.wantDenied(t, other); denied.Holder != (driver.Holder{}) {
			t.Errorf("told %+v", denied)
		}
		if row := lookSession(t, b, "other"); row.Held() {
			t.Errorf("a look at the other name: %+v", row)
		}
		unlock(t, s, one, res)
		s, res = b.lock(t, other)
		if res.Crashed != (driver.Holder{}) {
			t.Errorf("%+v", res)
		}
		if row := lookSession(t, a, "one"); row.Held() {
			t.Errorf("a look at the first name: %+v", row)
		}
		unlock(t, s, other, res)
	})
}

func TestTheAdvisoryKeyIsWhatItsDocumentationSays(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		c := advisory.client(t, f)
		for _, name := range []string{"name", "größer"} {
			var id, key string
			err := f.Open(t).QueryRow(`SELECT HEX(id), CONCAT('sqllock:', LEFT(SHA2(CONCAT('sqllock advisory', x'00', id, x'00', CAST(? AS BINARY)), 256), 32))
				FROM sqllock_meta`, name).Scan(&id, &key)
			if err != nil {
				t.Fatal(err)
			}
			var database driver.ID
			if err := database.UnmarshalText([]byte(id)); err != nil {
				t.Fatal(err)
			}
			if got := lockmysql.AdvisoryKey(database, name); got != key || c.Key(name) != key {
				t.Errorf("%q: got %q, the store has %q, SQL says %q", name, got, c.Key(name), key)
			}
			s, _ := c.lock(t, request(name))
			var holder int64
			if err := f.Open(t).QueryRow(`SELECT IS_USED_LOCK(?)`, key).Scan(&holder); err != nil || fmt.Sprint(holder) != s.ID() {
				t.Errorf("held by %d, %v; the session is %s", holder, err, s.ID())
			}
		}
	})
}
