package leak_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/leak"
)

func TestMain(m *testing.M) {
	leak.SetTimeout(time.Second)
	os.Exit(m.Run())
}

func TestCheckSucceedsWithoutGoroutines(t *testing.T) {
	if err := leak.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckWaitsForAGoroutineThatIsAboutToEnd(t *testing.T) {
	go time.Sleep(300 * time.Millisecond)
	if err := leak.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckShowsTheStackOfALeakedGoroutine(t *testing.T) {
	stop := make(chan struct{})
	go forgotten(stop)
	err := leak.Check()
	close(stop)
	if err == nil || !strings.Contains(err.Error(), "leak_test.forgotten") {
		t.Fatalf("want the stack of forgotten, got %v", err)
	}
	if err := leak.Check(); err != nil {
		t.Fatalf("after its end: %v", err)
	}
}

func TestCheckFindsAnOpenDatabaseHandle(t *testing.T) {
	db := sql.OpenDB(noServer{})
	err := leak.Check()
	_ = db.Close()
	if err == nil || !strings.Contains(err.Error(), "connectionOpener") {
		t.Fatalf("want the opener's stack, got %v", err)
	}
	if err := leak.Check(); err != nil {
		t.Fatalf("after Close: %v", err)
	}
}

// forgotten waits like a goroutine that was not stopped.
func forgotten(stop chan struct{}) { <-stop }

// noServer is a database without connections.
type noServer struct{}

func (noServer) Connect(context.Context) (driver.Conn, error) { return nil, driver.ErrBadConn }
func (noServer) Driver() driver.Driver                        { return nil }
