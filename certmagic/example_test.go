package certmagiclock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/certmagic"

	"github.com/sqllock/sqllock"
	certmagiclock "github.com/sqllock/sqllock/certmagic"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func readme(ctx context.Context, db *sql.DB) (net.Listener, error) {
	locks, err := sqllock.NewUnique(ctx, lockpg.DB(db), nil)
	if err != nil {
		return nil, err
	}
	inner := certmagic.Default.Storage // or any other, as long as all servers share it
	certmagic.Default.Storage, err = certmagiclock.New(inner, locks, "tls/")
	if err != nil {
		return nil, err
	}
	return certmagic.Listen([]string{"www.example.com"})
}

// Two servers of a cluster, here two storages on one file of locks.
func Example() {
	dir, err := os.MkdirTemp("", "certmagic")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	var servers []*certmagiclock.Storage
	for range 2 {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "locks.db")+"?_pragma=journal_mode(wal)")
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		if err := migrations.Up(ctx, locksqlite.DB(db)); err != nil {
			log.Fatal(err)
		}
		locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close(ctx)
		s, err := certmagiclock.New(&certmagic.FileStorage{Path: dir}, locks, "tls/")
		if err != nil {
			log.Fatal(err)
		}
		servers = append(servers, s)
	}
	if err := servers[0].Lock(ctx, "issue_cert_www.example.com"); err != nil {
		log.Fatal(err)
	}
	ok, err := servers[1].TryLock(ctx, "issue_cert_www.example.com")
	fmt.Println("the other server obtains it, too:", ok, err)
	if err := servers[0].Unlock(ctx, "issue_cert_www.example.com"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the other server obtains it, too: false <nil>
}

func TestTheReadmeShowsCodeThatCompiles(t *testing.T) {
	_ = readme // compiled here
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)\n```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Errorf("there are %d blocks", len(blocks))
	}
	for _, b := range blocks {
		if indented := "\t" + strings.ReplaceAll(b[1], "\n", "\n\t") + "\n"; !strings.Contains(string(source), indented) {
			t.Errorf("this is not in example_test.go:\n%s", b[1])
		}
	}
}
