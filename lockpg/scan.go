package lockpg

import (
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// nullHolder is a holder as a row of terms has it: nothing of it if there is no row, and no
// names if nobody holds.
type nullHolder struct {
	acq, owner, label     sql.NullString
	version, since, until sql.NullInt64
	shared                sql.NullBool
}

// targets are what a row is scanned into.
type targets []any

// into are the targets of a holder, after those of before.
func (h *nullHolder) into(before ...any) targets {
	return append(before, &h.acq, &h.owner, &h.label, &h.version, &h.since, &h.until, &h.shared)
}

func (t targets) then(more ...any) targets { return append(t, more...) }

func (h *nullHolder) holder() (driver.Holder, error) {
	r := driver.Holder{Owner: h.owner.String, Label: h.label.String,
		Version: h.version.Int64, Since: h.since.Int64, Until: h.until.Int64, Shared: h.shared.Bool}
	if !h.acq.Valid {
		return r, nil
	}
	var err error
	r.Acq, err = parseID(h.acq.String)
	return r, err
}

// scanRow reads the columns of term, the value, and what follows.
func scanRow(rows *sql.Rows, more ...any) (driver.Row, error) {
	var name sql.NullString
	var h nullHolder
	var holds, readers, gate, ended, revoked sql.NullInt64
	var r driver.Row
	err := rows.Scan(h.into(&name).then(&holds, &readers, &gate, &ended, &revoked, &r.Now, &r.Value).then(more...)...)
	if err != nil {
		return r, err
	}
	r.Name, r.Holds, r.Gate, r.Ended = name.String, int(holds.Int64), gate.Int64, driver.Ending(ended.Int64)
	r.Revoked, r.Readers = revoked.Int64, int(readers.Int64)
	r.Holder, err = h.holder()
	return r, err
}
