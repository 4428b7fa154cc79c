package lockpg

import (
	"context"
	"crypto/sha256"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// prepared runs statements on a connection of pgx in less time than the interfaces of pgx
// for statements of any kind. It prepares each statement once, writes parameters and reads
// results in the binary notation of the server, and uses its memory again. It is used by
// whoever has the connection.
type prepared struct {
	statements map[string]*pgconn.StatementDescription // by text
	params     params
	row        binaryRow
	scan       rowstore.Scanner // of row
}

// preparedKey finds the prepared of a connection in its custom data.
const preparedKey = "github.com/sqllock/sqllock/lockpg"

// preparedOn returns the prepared of a connection. It returns nil if the application has
// chosen another way to send statements, as a pooler may require, or if it traces them.
func preparedOn(conn *pgx.Conn) *prepared {
	data := conn.PgConn().CustomData()
	if p, ok := data[preparedKey].(*prepared); ok {
		return p
	}
	var p *prepared
	c := conn.Config()
	if c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && c.StatementCacheCapacity > 0 && c.Tracer == nil {
		p = &prepared{statements: make(map[string]*pgconn.StatementDescription)}
		p.scan = p.row.scan
	}
	data[preparedKey] = p
	return p
}

// run is pipeline with prepared statements. It tries again if it has done nothing because
// statements must be prepared anew.
func (p *prepared) run(ctx context.Context, conn *pgconn.PgConn, steps []step) (done int, err error) {
	done, err = p.try(ctx, conn, steps)
	if isOutdated(err) {
		clear(p.statements)
		if done == 0 && conn.TxStatus() == 'I' { // nothing was run
			done, err = p.try(ctx, conn, steps)
		}
	}
	switch {
	case isOutdated(err): // whatever was run in the same transaction is undone
		err = sqlconn.Repeatable(err)
	case isUnsent(err) && ctx.Err() == nil:
		return 0, sqldriver.ErrBadConn
	}
	return done, err
}

// isOutdated reports that somebody has deallocated a statement that was prepared, or has
// changed the columns of its result.
func isOutdated(err error) bool {
	if err == nil {
		return false
	}
	var refused *pgconn.PgError
	return errors.As(err, &refused) &&
		(refused.Code == "26000" || refused.Code == "0A000" && refused.Routine == "RevalidateCachedQuery")
}

func (p *prepared) try(ctx context.Context, conn *pgconn.PgConn, steps []step) (done int, err error) {
	if err := p.prepare(ctx, conn, steps); err != nil {
		return 0, err
	}
	return p.send(ctx, conn, steps)
}

// inBinary says that all parameters, or all columns, are in binary notation.
var inBinary = []int16{pgx.BinaryFormatCode}

// send sends statements that are prepared, and reads what comes back.
func (p *prepared) send(ctx context.Context, conn *pgconn.PgConn, steps []step) (done int, err error) {
	if len(steps) == 1 {
		d := p.statements[steps[0].text]
		if err := p.params.set(steps[0].args, d.ParamOIDs); err != nil {
			return 0, err
		}
		if err := p.read(&steps[0], conn.ExecStatement(ctx, d, p.params.values, inBinary, inBinary)); err != nil {
			return 0, err
		}
		return 1, nil
	}
	var batch pgconn.Batch
	for i := range steps {
		d := p.statements[steps[i].text]
		if err := p.params.set(steps[i].args, d.ParamOIDs); err != nil {
			return 0, err
		}
		batch.ExecStatement(d, p.params.values, inBinary, inBinary)
	}
	results := conn.ExecBatch(ctx, &batch)
	for err == nil && done < len(steps) && results.NextResult() {
		if err = p.read(&steps[done], results.ResultReader()); err == nil {
			done++
		}
	}
	if last := results.Close(); err == nil {
		err = last
	}
	return done, err
}

// read reads the result of a step to its end.
func (p *prepared) read(s *step, result *pgconn.ResultReader) (err error) {
	for s.scan != nil && err == nil && result.NextRow() {
		p.row.values = result.Values()
		err = s.scan(p.scan)
	}
	tag, last := result.Close()
	if err == nil {
		err = last
	}
	if s.changed != nil && err == nil {
		*s.changed = tag.RowsAffected()
	}
	return err
}

// prepare prepares those of the statements that are not.
func (p *prepared) prepare(ctx context.Context, conn *pgconn.PgConn, steps []step) error {
	var texts []string
	for i := range steps {
		if text := steps[i].text; p.statements[text] == nil && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	pipeline := conn.StartPipeline(ctx)
	for _, text := range texts {
		pipeline.SendDeallocate(statementName(text)) // of one that failed later
		pipeline.SendPrepare(statementName(text), text, nil)
	}
	err := pipeline.Sync()
	for i := 0; i < len(texts) && err == nil; {
		var result any
		result, err = pipeline.GetResults()
		if d, ok := result.(*pgconn.StatementDescription); ok {
			d.Name = statementName(texts[i])
			p.statements[texts[i]] = d
			i++
		}
	}
	if last := pipeline.Close(); err == nil {
		err = last
	}
	return err
}

// statementName returns the name of a prepared statement.
func statementName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sqllock_" + hex.EncodeToString(sum[:16])
}
