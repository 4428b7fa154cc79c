//go:build matrix

package drivers

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/sqllocktest"
)

// through is a way to a database.
type through struct {
	name   string // as in "pgbouncer in session mode"
	engine *pairs.Engine
	modes  []func(*pairs.Engine) sqllocktest.Harness
	// direct says that connections lead to the server that testdb starts: the suite may stop it.
	direct bool
	// begin, if not nil, makes the way for the length of a test.
	begin func(t *testing.T)
	// adapt, if not nil, changes what the driver or the pooler does differently.
	adapt func(*sqllocktest.Harness)
}

var (
	unique    = (*pairs.Engine).Unique
	forUpdate = (*pairs.Engine).ForUpdate
	advisory  = (*pairs.Engine).Advisory
)

// harnesses are one for each mode.
func (w *through) harnesses() (all []sqllocktest.Harness) {
	for _, mode := range w.modes {
		h := mode(w.engine)
		h.Database = w.name
		if w.adapt != nil {
			w.adapt(&h)
		}
		all = append(all, h)
	}
	return all
}

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // many tests lose leases, and say so by themselves
	var all []sqllocktest.Harness
	for i := range ways {
		all = append(all, ways[i].harnesses()...)
	}
	sqllocktest.Main(all...)
	testdb.Main(m)
}

func TestConformance(t *testing.T) {
	for i := range ways {
		w := &ways[i]
		t.Run("through "+w.name, func(t *testing.T) {
			if w.begin != nil {
				w.begin(t)
			}
			for _, h := range w.harnesses() {
				t.Run(h.Mode, func(t *testing.T) { w.run(t, h) })
			}
		})
	}
}

func (w *through) run(t *testing.T, h sqllocktest.Harness) {
	h.Brief = testing.Short()
	if w.direct && slices.Contains(testdb.Startable(), w.engine.Name) {
		h.Server = &sqllocktest.Server{Start: w.engine.Server}
	}
	dsn := h.Fresh(t)
	if w.engine.Name != testdb.SQLite { // where writers of one file wait for each other
		h.DSN = func(testing.TB) string { return dsn }
	}
	w.engine.Complete(t, &h, dsn)
	sqllocktest.Run(t, h)
	for _, s := range h.Omitted() {
		t.Log("does not apply, as " + s)
	}
}
