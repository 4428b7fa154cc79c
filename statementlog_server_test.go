package sqllock_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// logging starts a server that logs all statements, with tables.
func logging(t *testing.T, e *engine) *testdb.Server {
	t.Helper()
	var args []string
	if e.name == testdb.Postgres {
		args = []string{"-c", "log_statement=all", "-c", "logging_collector=on", "-c", "log_destination=csvlog", "-c", "log_rotation_size=0"}
	}
	s := testdb.StartServer(t, e.name, args...)
	e.migrated(t, s.Database)
	return s
}

func engineNamed(t *testing.T, name string) *engine {
	t.Helper()
	i := slices.IndexFunc(engines, func(e engine) bool { return e.name == name && e.setting == "" })
	return &engines[i]
}

func TestNothingThatIsGivenIsPartOfAStatementInTheLogOfPostgres(t *testing.T) {
	if !slices.Contains(testdb.Startable(), testdb.Postgres) {
		return // which Startable has noted
	}
	t.Parallel()
	e := engineNamed(t, testdb.Postgres)
	s := logging(t, e)
	admin := s.Open(t)
	offset := 0
	converge(t, e, s.Open(t), func(t *testing.T) map[string]bool {
		t.Helper()
		time.Sleep(300 * time.Millisecond) // the collector writes when it gets to it
		var log string
		err := admin.QueryRowContext(t.Context(), `SELECT pg_read_file(pg_current_logfile('csvlog'))`).Scan(&log)
		if err != nil {
			t.Fatal(err)
		}
		whole := strings.LastIndexByte(log, '\n') + 1
		records, err := csv.NewReader(strings.NewReader(log[offset:whole])).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		offset = whole
		const message = 13
		var texts []string
		for _, r := range records {
			_, text, ok := strings.Cut(r[message], ": ")
			if ok && (strings.HasPrefix(r[message], "execute ") || strings.HasPrefix(r[message], "statement: ")) {
				texts = append(texts, text)
			}
		}
		return newTexts(texts)
	})
}

func TestNothingThatIsGivenIsPartOfAStatementInTheLogOfMariaDB(t *testing.T) {
	if !slices.Contains(testdb.Startable(), testdb.MariaDB) {
		return
	}
	t.Parallel()
	e := engineNamed(t, testdb.MariaDB)
	s := logging(t, e)
	admin := s.Open(t)
	admin.SetMaxOpenConns(1)
	for _, text := range []string{`SET GLOBAL log_output = 'TABLE'`, `SET GLOBAL general_log = ON`} {
		mustExec(t, admin, text)
	}
	// With Execute the server writes the text with the parameters put in, for people.
	converge(t, e, s.Open(t), func(t *testing.T) map[string]bool {
		return newTexts(generalLog(t, admin, "'Prepare', 'Query'"))
	})
	// Where the driver puts the parameters in, because the DSN says so, they are
	// numbers, ids and hexadecimal digits.
	r := &round{T: t, e: e, db: s.Open(t, "interpolateParams=true"), number: 99}
	r.run()
	found := false
	for _, text := range generalLog(t, admin, "'Query'") {
		if strings.Contains(text, "m4rk3r") {
			t.Errorf("an input stands in: %s", text)
		}
		found = found || strings.Contains(text, hex.EncodeToString([]byte("m4rk3r")))
	}
	if !found {
		t.Error("no statement with an input was logged")
	}
}

// generalLog empties the log and returns what it had of some kinds.
func generalLog(t *testing.T, admin *sql.DB, kinds string) (texts []string) {
	t.Helper()
	rows, err := admin.QueryContext(t.Context(), `SELECT argument FROM mysql.general_log WHERE thread_id <> connection_id() AND command_type IN (`+kinds+`)`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text []byte
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(bytes.TrimSpace(text)))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	_ = rows.Close()
	_, err = admin.ExecContext(context.WithoutCancel(t.Context()), `TRUNCATE TABLE mysql.general_log`)
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
