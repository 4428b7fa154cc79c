package migrations_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// On MySQL each statement commits by itself, so a process can die between any
// two. The states that this leaves are made one by one, and finished both ways.
func TestEachHalfWayStateOfMySQLIsFinished(t *testing.T) {
	beNext(t)
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			db := testdb.New(t, engine).Open(t)
			h := &halfway{engine: engine, db: db, m: target(engine, db, "", "")}
			h.files = steps(t, h.m)
			for k := range h.files {
				h.below(t, k)
				h.columns = append(h.columns, columns(t, engine, db))
				for _, last := range []string{"up", "down"} {
					for n := range len(h.files[k].up) + 1 { // an Up that died
						h.below(t, k)
						h.note(t, k)
						h.run(t, h.files[k].up[:n])
						h.finish(t, k, last, fmt.Sprint("up ", n))
					}
					for n := range len(h.files[k].down) + 1 { // a Down that died
						h.below(t, k+1)
						h.note(t, k)
						h.run(t, h.files[k].down[:n])
						h.finish(t, k, last, fmt.Sprint("down ", n))
					}
				}
			}
			for _, last := range []string{"up", "down"} {
				for _, left := range []string{``, `WHERE version_id > 0`} { // before and after goose's own row
					h.below(t, 0)
					mustExec(t, db, `DELETE FROM sqllock_migration `+left)
					h.finish(t, 0, last, left)
				}
			}
		})
	}
}

// step is a migration file taken apart.
type step struct {
	version  int64
	up, down []string
}

// steps are the files for m, oldest first.
func steps(t *testing.T, m driver.Migratable) (files []step) {
	t.Helper()
	fsys, err := migrations.FS(m)
	if err != nil {
		t.Fatal(err)
	}
	list, err := migrations.Status(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range list {
		text, err := fs.ReadFile(fsys, known.Name)
		if err != nil {
			t.Fatal(err)
		}
		head, tail, found := strings.Cut(string(text), "-- +goose Down")
		if !found {
			t.Fatalf("%s has no way down", known.Name)
		}
		files = append(files, step{known.Version, statements(head), statements(tail)})
	}
	return files
}

// statements takes a part of a file of ours apart, in which no line ends with a
// semicolon but that of a statement.
func statements(text string) (list []string) {
	for part := range strings.SplitSeq(text, ";\n") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// halfway makes the states that a dead process leaves.
type halfway struct {
	engine string
	db     *sql.DB
	m      database
	files  []step

	columns [][]string // below each of the files
}

func (h *halfway) run(t *testing.T, list []string) {
	t.Helper()
	conn, err := h.db.Conn(t.Context()) // what a statement prepares the next one executes
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range list {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// below makes a database as it is when the first n migrations are applied,
// without the help of Down.
func (h *halfway) below(t *testing.T, n int) {
	t.Helper()
	if len(objects(t, h.engine, h.db)) == 0 {
		up(t, h.m) // for its account
	}
	h.run(t, h.files[0].down) // which drops everything
	mustExec(t, h.db, `DELETE FROM sqllock_migration WHERE version_id > 0`)
	for _, f := range h.files[:n] {
		h.run(t, f.up)
		mustExec(t, h.db, fmt.Sprintf(`INSERT INTO sqllock_migration (version_id, is_applied) VALUES (%d, true)`, f.version))
	}
}

// note writes what is noted before the first statement of a file.
func (h *halfway) note(t *testing.T, k int) {
	t.Helper()
	mustExec(t, h.db, fmt.Sprintf(`REPLACE INTO sqllock_migration (version_id, is_applied) VALUES (%d, false)`, h.files[k].version))
}

// finish has the state left by an Up or a Down of file k finished.
func (h *halfway) finish(t *testing.T, k int, last, after string) {
	t.Helper()
	if last == "up" {
		up(t, h.m)
		checkApplied(t, h.m)
		checkUsable(t, h.m)
		_ = query(t, h.db, `SELECT ended FROM sqllock_locks`)
		return
	}
	down(t, h.m)
	got := columns(t, h.engine, h.db)
	list, err := migrations.Status(t.Context(), h.m)
	if err != nil || list[k].Applied || k > 0 && !list[k-1].Applied {
		t.Errorf("file %d, Down after %s: %+v, %v", k, after, list, err)
	}
	if k == 0 {
		if left := objects(t, h.engine, h.db); len(left) > 0 {
			t.Errorf("file 0, Down after %s left %q", after, left)
		}
		return
	}
	if want := h.columns[k]; !slices.Equal(got, want) {
		t.Errorf("file %d, Down after %s left\n%q, want\n%q", k, after, got, want)
	}
}

// columns are the columns of all tables and views.
func columns(t *testing.T, engine string, db *sql.DB) []string {
	t.Helper()
	switch engine {
	case testdb.SQLite:
		return query(t, db, `SELECT s.name || '.' || c.name || ' ' || c.type FROM sqlite_schema s, pragma_table_info(s.name) c
			WHERE s.type IN ('table', 'view') ORDER BY 1`)
	case testdb.Postgres:
		return query(t, db, `SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns
			WHERE table_schema = 'public' ORDER BY 1`)
	}
	return query(t, db, `SELECT concat(table_name, '.', column_name, ' ', column_type) FROM information_schema.columns
		WHERE table_schema = database() ORDER BY 1`)
}
