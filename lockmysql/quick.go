package lockmysql

import (
	"context"
	"database/sql"
	"encoding/hex"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Quick implements [rowstore.Quick]. A claim of one name, and its hand-over, are a transaction in
// one round trip. They need blocks.
func (e *engine) Quick(statement string, rows int) bool {
	return rows == 1 && e.blocks() && (statement == "queue_quickly" || statement == "hand_over_quickly")
}

// RunThen implements [rowstore.Quick]. MariaDB cannot wake anybody.
func (e *engine) RunThen(ctx context.Context, s, _ rowstore.Statement) error { return e.Run(ctx, s) }

// quickly runs a statement that replaces a visit. It has no result if it has changed nothing. The
// result comes before the commit: if that is undone, as while a backup blocks commits, the result is
// void.
func (e *engine) quickly(ctx context.Context, s *rowstore.Statement) error {
	var steps []step
	told := false
	scan := func(rows *sql.Rows) error {
		told = true
		return s.Scan(rows.Scan)
	}
	switch {
	case s.Name == "hand_over_quickly":
		steps = e.handOverSteps(s, scan)
	case len(s.Batch[6].([][]byte)[0]) > 0: // a value may not fit
		return nil
	default:
		steps = e.queueSteps(s, scan)
	}
	if e.waitsOnServer(ctx) {
		steps[0].text = e.queries.texts[s.Name+"_patiently"]
	}
	done, err := e.allOrNone(ctx, steps...)
	if err == nil && told && !done {
		return errLocked
	}
	return err
}

// queueSteps enter a claim. The columns of its batch are those of rowstore's queueBatch.
func (e *engine) queueSteps(s *rowstore.Statement, scan func(*sql.Rows) error) []step {
	texts, name, acq := e.queries.texts, digits(s.Batch[0].([]string)[0]), s.Batch[1].([]driver.ID)[0].String()
	kind, ttl, handed := s.Batch[2].([]int64)[0], s.Batch[3].([]int64)[0], s.Batch[4].([]int64)[0]
	owner, carries := digits(s.Batch[5].([]string)[0]), hex.EncodeToString(s.Batch[7].([][]byte)[0])
	return []step{
		{text: texts["queue_quickly"], args: []any{name, acq}},
		changedAll(1),
		{text: texts["queue_claim"], args: []any{acq, kind, ttl, handed, e.locker, owner, e.label, carries, name}},
		{text: texts["queued"], args: []any{e.locker, name}, scan: scan},
	}
}

// handOverSteps hand a name over, or free it if nobody waits for it. The columns of the batch are
// those of rowstore's releaseBatch.
func (e *engine) handOverSteps(s *rowstore.Statement, scan func(*sql.Rows) error) []step {
	texts, name, acq := e.queries.texts, digits(s.Batch[0].([]string)[0]), s.Batch[1].([]driver.ID)[0].String()
	version, minHold := s.Batch[2].([]int64)[0], max(s.Batch[3].([]int64)[0], 0)
	free := []any{name, acq, version}
	if minHold > 0 { // free_one knows none
		free[2] = int64(-1)
	}
	return []step{
		{text: texts["hand_over_quickly"], args: []any{name, e.locker, e.locker, name, acq, version, minHold}},
		{text: "IF ROW_COUNT() = 1 THEN " + texts["hand_over_claim"] + "; ELSE " + texts["free_one"] + "; END IF", args: append([]any{name}, free...)},
		changedAll(1),
		{text: texts["handed_over"], args: []any{name}, scan: scan},
	}
}
