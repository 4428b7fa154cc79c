package lockmysql

import (
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// store is the unique mode.
type store struct {
	*rowstore.Store
	engine *engine
}

var _ driver.NodeStore = (*store)(nil)
