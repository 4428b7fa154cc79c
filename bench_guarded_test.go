package sqllock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// BenchmarkGuardedCycle has one caller lock a name, write under it in a guarded transaction,
// and unlock: after the transaction, or in it. Where the database counts them, it reports
// how often the log was flushed for a cycle.
func BenchmarkGuardedCycle(b *testing.B) {
	write := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + 1`)
		return err
	}
	for _, engine := range testdb.All() {
		for _, c := range []struct {
			what string
			end  func(ctx context.Context, lease *sqllock.Lease) error
		}{
			{"InTx and Unlock", func(ctx context.Context, lease *sqllock.Lease) error { return lease.InTx(ctx, nil, write) }},
			{"UnlockInTx", func(ctx context.Context, lease *sqllock.Lease) error { return lease.UnlockInTx(ctx, nil, write) }},
		} {
			b.Run(engine+"/"+c.what, func(b *testing.B) { benchmarkGuardedCycle(b, engine, c.end) })
		}
	}
}

func benchmarkGuardedCycle(b *testing.B, engine string, end func(ctx context.Context, lease *sqllock.Lease) error) {
	db := testdb.New(b, engine).Open(b)
	database := withPrefix(engine, db, "t_")
	if err := migrations.Up(b.Context(), database); err != nil {
		b.Fatal(err)
	}
	for _, text := range []string{`CREATE TABLE account (balance INT)`, `INSERT INTO account VALUES (0)`} {
		if _, err := db.Exec(text); err != nil {
			b.Fatal(err)
		}
	}
	locks, err := sqllock.NewUnique(b.Context(), database, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	cycle := func() {
		err := locks.Do(b.Context(), "a", end)
		if err != nil {
			b.Fatal(err)
		}
	}
	cycle() // what is done once is done
	before := flushes(b, engine, db)
	for b.Loop() {
		cycle()
	}
	if n := flushes(b, engine, db) - before; n > 0 {
		b.ReportMetric(n/float64(b.N), "flushes/op")
	}
}

// flushes is how often a database has flushed its log, or 0 if it does not say.
func flushes(b *testing.B, engine string, db *sql.DB) (n float64) {
	b.Helper()
	b.StopTimer()
	defer b.StartTimer()
	text := map[string]string{
		testdb.Postgres: `SELECT wal_sync FROM pg_stat_wal`,
		// MariaDB does not flush what is in memory: set TMPDIR to a directory on a disk.
		testdb.MariaDB: `SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Innodb_data_fsyncs'`,
		testdb.MySQL:   `SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Innodb_os_log_fsyncs'`,
	}[engine]
	if text == "" {
		return 0
	}
	time.Sleep(1500 * time.Millisecond) // Postgres counts with a delay
	if err := db.QueryRow(text).Scan(&n); err != nil {
		b.Logf("flushes are not counted: %v", err)
	}
	return n
}
