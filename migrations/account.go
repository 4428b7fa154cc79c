package migrations

import (
	"context"
	"fmt"

	"github.com/pressly/goose/v3/database"
)

// account is the version table as goose uses it. It differs from goose's own
// stores in that names are quoted, that it has a version once, and that
// writing what is there already does no harm.
type account migrator

var _ database.StoreExtender = (*account)(nil)

// Tablename implements [database.Store]. It is for messages.
func (a *account) Tablename() string { return a.Prefix + "migration" }

// CreateVersionTable implements [database.Store]. The table is there before
// goose begins, unless somebody drops it at this very moment.
func (a *account) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	for _, statement := range a.create {
		if err := a.exec(ctx, db, statement, 0); err != nil {
			return err
		}
	}
	return nil
}

// Insert implements [database.Store].
func (a *account) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	return a.exec(ctx, db, a.insert, req.Version)
}

// Delete implements [database.Store].
func (a *account) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	return a.exec(ctx, db, a.remove, version)
}

func (a *account) exec(ctx context.Context, db database.DBTxConn, statement string, version int64) error {
	_, err := db.ExecContext(ctx, (*migrator)(a).textFor(statement, version))
	return err
}

// GetMigration implements [database.Store].
func (a *account) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	list, err := (*migrator)(a).readDone(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, row := range list {
		if row.version == version {
			return &database.GetMigrationResult{Timestamp: row.at, IsApplied: true}, nil
		}
	}
	return nil, fmt.Errorf("%w: %d", database.ErrVersionNotFound, version)
}

// GetLatestVersion implements [database.Store].
func (a *account) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	list, err := (*migrator)(a).readDone(ctx, db)
	if err != nil {
		return -1, err
	}
	if len(list) == 0 {
		return -1, database.ErrVersionNotFound
	}
	return newest(list), nil
}

// ListMigrations implements [database.Store].
func (a *account) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	list, err := (*migrator)(a).readDone(ctx, db)
	if err != nil {
		return nil, err
	}
	results := make([]*database.ListMigrationsResult, len(list))
	for i, row := range list {
		results[i] = &database.ListMigrationsResult{Version: row.version, IsApplied: true}
	}
	return results, nil
}

// TableExists implements [database.StoreExtender].
func (a *account) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	return (*migrator)(a).exists(ctx, db, a.existsVersions)
}
