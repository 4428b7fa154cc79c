//go:build linux

package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/server"
)

// The database itself writes down each change of the tables, by triggers, in the same transaction.
// A lock row is changed under its lock, so the numbers of the changes of a name are in their order.

// noting are the statements that make the triggers.
var noting = map[string][]string{
	server.Postgres: append([]string{
		`CREATE TABLE noted (id bigserial PRIMARY KEY, at bigint NOT NULL, tx bigint NOT NULL, what text NOT NULL, was text, becomes text)`,
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO noted (at, tx, what, was, becomes)
			VALUES ((date_part('epoch', clock_timestamp()) * 1000000)::bigint, txid_current(), TG_ARGV[0],
				CASE WHEN TG_OP <> 'INSERT' THEN row_to_json(OLD)::text END,
				CASE WHEN TG_OP <> 'DELETE' THEN row_to_json(NEW)::text END);
			RETURN NULL;
		END $$`,
	}, eachTable(func(table string, _ []string) []string {
		return []string{fmt.Sprintf("CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON sqllock_%s FOR EACH ROW EXECUTE FUNCTION note('%s')", table, table)}
	})...),
	server.MariaDB: append([]string{
		`CREATE SEQUENCE notes`,
		`CREATE TABLE noted (id bigint PRIMARY KEY, at bigint NOT NULL, tx bigint NOT NULL, what varchar(10) NOT NULL, was text, becomes text)`,
	}, eachTable(func(table string, columns []string) (all []string) {
		for _, op := range []string{"INSERT", "UPDATE", "DELETE"} {
			was, becomes := object("OLD", columns), object("NEW", columns)
			switch op {
			case "INSERT":
				was = "NULL"
			case "DELETE":
				becomes = "NULL"
			}
			// UTC_TIMESTAMP is when the statement began, SYSDATE is now, in the time zone of NOW.
			all = append(all, fmt.Sprintf(`CREATE TRIGGER note_%s_%s AFTER %s ON sqllock_%s FOR EACH ROW
				INSERT INTO noted (id, at, tx, what, was, becomes)
				VALUES (NEXTVAL(notes), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) - TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), NOW(6)),
					CONNECTION_ID(), '%s', %s, %s)`, table, op, op, table, table, was, becomes))
		}
		return all
	})...),
}

// noted are the columns that are written down. Of those with an asterisk the database has bytes.
var noted = map[string][]string{
	history.LockTable: {"*name", "*acq", "*locker", "*owner", "version", "holds", "since", "expires_at", "not_before", "permits", "waiting", "holding",
		"seq", "revoked"},
	history.ClaimTable:  {"*name", "*acq", "*locker", "*owner", "state", "kind", "slot", "seq", "token", "holds", "ttl", "handed", "since", "expires_at"},
	history.WaiterTable: {"*locker", "expires_at"},
}

func eachTable(do func(table string, columns []string) []string) (all []string) {
	for _, table := range []string{history.LockTable, history.ClaimTable, history.WaiterTable} {
		all = append(all, do(table, noted[table])...)
	}
	return all
}

// object is the SQL of a JSON object of columns.
func object(row string, columns []string) string {
	pairs := make([]string, len(columns))
	for i, c := range columns {
		name, bytes := strings.CutPrefix(c, "*")
		value := row + "." + name
		switch {
		case name == "name" || name == "owner":
			value = "CONVERT(" + value + " USING utf8mb4)"
		case bytes:
			value = "LOWER(HEX(" + value + "))"
		}
		pairs[i] = "'" + name + "', " + value
	}
	return "JSON_OBJECT(" + strings.Join(pairs, ", ") + ")"
}

// note makes the triggers.
func (s *site) note(ctx context.Context) error {
	if !s.Replays() {
		return nil
	}
	for _, text := range noting[s.Database] {
		if _, err := s.admin.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// chunk is how many changes are in an event.
const chunk = 500

// readChanges writes what the triggers have written down into the history.
func (s *site) readChanges(ctx context.Context) error {
	if !s.Replays() {
		return nil
	}
	rows, err := s.admin.QueryContext(ctx, "SELECT at, tx, what, coalesce(was, 'null'), coalesce(becomes, 'null') FROM noted ORDER BY id")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var all []history.Change
	write := func() {
		s.log.Write(history.Event{Op: history.Changed, T: history.Now(), Changes: all})
		all = nil
	}
	for rows.Next() {
		var c history.Change
		kept := false // of a lease whose requests are not in the history
		var was, becomes []byte
		if err := rows.Scan(&c.At, &c.Tx, &c.Table, &was, &becomes); err != nil {
			return err
		}
		for into, text := range map[**history.Record][]byte{&c.Old: was, &c.New: becomes} {
			if err := json.Unmarshal(text, into); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			if r := *into; r != nil {
				r.Acq, r.Locker = plainID(r.Acq), plainID(r.Locker)
				kept = kept || strings.HasPrefix(r.Name, client.KeptPrefix)
			}
		}
		if kept {
			continue
		}
		if all = append(all, c); len(all) == chunk {
			write()
		}
	}
	write()
	return rows.Err()
}

// plainID is an ID without hyphens.
func plainID(id string) string { return strings.ReplaceAll(id, "-", "") }
