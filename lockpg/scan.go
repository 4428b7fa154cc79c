package lockpg

import (
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// nullHolder is a holder as a row of terms has it: nothing of it if there is no row, and no
// names if nobody holds.
type nullHolder struct {
	acq, owner, label sql.NullString
	version, since    sql.NullInt64
}

// into are the targets of a holder, after those of before.
func (h *nullHolder) into(before ...any) []any {
	return append(before, &h.acq, &h.owner, &h.label, &h.version, &h.since)
}

// holder is nobody if nobody holds.
func (h *nullHolder) holder() (r driver.Holder, err error) {
	if !h.acq.Valid {
		return r, nil
	}
	r = driver.Holder{Owner: h.owner.String, Label: h.label.String, Version: h.version.Int64, Since: h.since.Int64}
	r.Acq, err = parseID(h.acq.String)
	return r, err
}
