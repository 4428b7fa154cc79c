package sqllock_test

import (
	"os/exec"
	"strings"
	"testing"
)

func TestUsersLinkOnlyTheirOwnDatabase(t *testing.T) {
	const module = "github.com/sqllock/sqllock"
	others := []string{"github.com/jackc/", "github.com/go-sql-driver/", "modernc.org/", "github.com/pressly/", "github.com/urfave/", "testing"}
	allowed := map[string]string{
		module:                 "",
		module + "/driver":     "",
		module + "/lockpg":     "github.com/jackc/",
		module + "/lockmysql":  "github.com/go-sql-driver/",
		module + "/locksqlite": "",
	}
	for pkg, own := range allowed {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", pkg, err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			for _, other := range others {
				if other != own && strings.HasPrefix(dep, other) {
					t.Errorf("%s links %s", pkg, dep)
				}
			}
		}
	}
}
