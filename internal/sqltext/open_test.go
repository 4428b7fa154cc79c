package sqltext_test

// openProducts are the databases with what is asked before a mode is opened.
func openProducts() []product {
	own := []product{products[0], products[1], products[2]}
	own[0].files, own[0].own = []string{"../../lockpg/sql/open.sql"}, postgresOpenExamples
	own[1].files, own[1].own = []string{"../../lockmysql/sql/open.sql"}, mysqlOpenExamples
	own[2].files, own[2].own = []string{"../../locksqlite/sql/open.sql"}, sqliteOpenExamples
	own[1].words = []string{"{isolation}", "tx_isolation", "{level}", "READ-COMMITTED"}
	return own
}

var openExceptions = []exception{
	{"version", "postgres mariadb", "on SQLite server says it, and fails on others"},
	{"server product file synchronous isolation writable", "sqlite", "a file has other settings than a server"},
	{"tables", "postgres sqlite", "MySQL has an engine for each table, which table asks for"},
	{"meta", "postgres sqlite", "on MySQL it is in unique.sql"},
	{"functions session_tables backend", "postgres", "it has functions and sequences, and poolers give away sessions"},
	{"variables redo table bound unbound", "mariadb", "durability and time-outs are variables, which a transaction cannot set for itself"},
}

var postgresOpenExamples = map[string]example{
	"version":        {},
	"tables":         example{}.and(`"sqllock_meta"`, `{"sqllock_lock"}`),
	"functions":      example{}.and("public", "sqllock_", "try_1", `"public"."sqllock_`, `"sqllock_`),
	"meta":           {},
	"session_tables": example{}.and(`"sqllock_term"`, `"sqllock_pin"`, `"sqllock_token"`),
	"backend":        {},
}

var mysqlOpenExamples = map[string]example{
	"version":   {},
	"variables": {},
	"redo":      {},
	"table":     example{}.and("sqllock_lock"),
	"bound":     {},
	"unbound":   {refused: "Incorrect argument type"}, // nothing is remembered
}

var sqliteOpenExamples = map[string]example{
	"server":      {},
	"product":     {refused: "no such function"},
	"file":        {},
	"synchronous": {},
	"isolation":   {},
	"tables":      example{}.and("sqllock_lock", "sqllock_meta"),
	"meta":        {},
	"writable":    {},
}
