package lockmysql_test

import (
	"fmt"
	"testing"
	"time"
)

// A trigger makes MariaDB leave out of its reply what LAST_INSERT_ID was given, and so the token.
func TestATriggerOfTheApplicationChangesNoToken(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, text := range []string{
			"CREATE TABLE audit (name VARBINARY(255), version BIGINT)",
			"CREATE TRIGGER audit_1 AFTER INSERT ON sqllock_lock FOR EACH ROW INSERT INTO audit VALUES (NEW.name, NEW.version)",
			"CREATE TRIGGER audit_2 AFTER UPDATE ON sqllock_lock FOR EACH ROW INSERT INTO audit VALUES (NEW.name, NEW.version)",
		} {
			if _, err := db.Exec(text); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{1, 3} {
			for _, all := range []bool{false, true} {
				for _, when := range []string{"new", "known"} {
					reqs := requests(n, fmt.Sprintf("%d, %t, %%d", n, all))
					for i := range reqs {
						reqs[i].All = all
					}
					res := take(t, s, reqs...)
					for i, r := range res {
						row := look(t, s, reqs[i].Name)[0]
						if r.Version == 0 || r.Version != row.Holder.Version || time.UnixMicro(r.Now).Before(time.Now().Add(-time.Hour)) {
							t.Errorf("%s: %q was granted with %+v, and the row says %+v", when, reqs[i].Name, r, row.Holder)
						}
					}
					if renewed := renew(t, s, false, renewals(reqs, res, time.Minute)...); renewed.Now < res[0].Now {
						t.Errorf("%s: renewed at %d, granted at %d", when, renewed.Now, res[0].Now)
					}
					release(t, s, releases(reqs, res)...)
				}
			}
		}
	})
}
