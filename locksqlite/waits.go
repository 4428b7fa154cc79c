package locksqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// Waits implements [driver.LeaseStore].
func (s *store) Waits(ctx context.Context) ([]driver.Wait, error) {
	var waits []driver.Wait
	err := s.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		waits = nil
		return query(ctx, conn, s.queries.line.waits, nil, func(scan func(...any) error) error {
			var w driver.Wait
			var carries []byte
			var holders string
			if err := scan(&w.Name, idTarget{&w.Acq}, &w.Label, &w.Seq, &w.Since, &w.Shared, &carries, &holders); err != nil {
				return err
			}
			held, err := hex.DecodeString(holders)
			if err != nil {
				return err
			}
			if w.Carries, err = ids(carries); err != nil {
				return err
			}
			if w.Holders, err = ids(held); err != nil {
				return err
			}
			waits = append(waits, w)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return waits, nil
}

// ids cuts up a column of many.
func ids(b []byte) ([]driver.ID, error) {
	const size = len(driver.ID{})
	if len(b)%size != 0 {
		return nil, fmt.Errorf("the ids in a row are %d bytes", len(b))
	}
	all := make([]driver.ID, len(b)/size)
	for i := range all {
		all[i] = driver.ID(b[i*size:])
	}
	return all, nil
}
