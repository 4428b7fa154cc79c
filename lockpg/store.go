package lockpg

import (
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// store is the unique mode.
type store struct {
	*rowstore.Store
	engine *engine
	pool   *sqlconn.Pool
	id     string // of the database

	sessionPooler bool // one in session mode may stand between
}

var _ driver.NodeStore = (*store)(nil)
