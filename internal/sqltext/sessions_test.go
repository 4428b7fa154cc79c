package sqltext_test

import "slices"

// sessionProducts are the databases that have the modes that keep locks in sessions.
func sessionProducts(mode string) []product {
	own := []product{products[0], products[1]}
	own[0].files, own[0].own = []string{"../../lockpg/sql/sessions.sql"}, postgresSessionExamples
	own[1].files, own[1].own = []string{"../../lockmysql/sql/sessions.sql"}, mysqlSessionExamples
	own[0].words = []string{"{mode}", mode, "{now}", "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
		"{try}", `"sqllock_try_1"`, "{token}", `"sqllock_token"`}
	own[1].words = append(slices.Clone(own[1].words), "{mode}", mode)
	return own
}

var sessionExceptions = []exception{
	{"look", "mariadb", "to read a value costs it a temporary table"},
	{"draw_many", "mariadb", "Postgres draws with the lock, see try, and begins a term only where something is to be kept"},
	{"lock lock_shared readers", "mariadb", "GET_LOCK knows no shared locks, and tells nobody who has them"},
	{"try pass lift own_locks note note_shared set_holds", "postgres", "tokens come from a sequence, and terms are written later, for people"},
	{"revoke_anybody", "postgres", "a lock may be held of which nothing is written"},
	{"guarded check_guards guard_lock", "postgres", "MySQL guards a lease of advisory mode by the row of its term"},
	{"try_pin try_lock", "postgres", "one statement looks at the server and locks; on MySQL these are pin_server and the next"},
	{"pin_server pin_now pin_skip pin_shared pin_shared_now pin_shared_skip find_pins", "mariadb",
		"each way to lock is a statement of its own, because one that meets no row must not lock a gap"},
	{"database", "mariadb", "Postgres compares the database in guard"},
	{"settings writable mark marked unmark", "mariadb", "a session of for-update mode has a lock by which others see that it lives"},
	{"session restore", "postgres", "settings are changed by a function that tells what they were"},
}

var postgresSessionExamples = map[string]example{
	"look_values":    batch(exampleName, 1),
	"page":           example{}.and("", 10),
	"make_rows":      batch(exampleName),
	"draw":           example{}.and(exampleName, acq, "owner", locker, "label", 0, 0, `\x00ff`, 1, 1, true, 1, 1),
	"end_term":       example{}.and(exampleName, 1, acq),
	"release":        batch(exampleName, acq, 1, 0).and(1),
	"set_value":      example{}.and(exampleName, 1, acq, `\x00ff`),
	"revoke_holder":  example{}.and(exampleName, 1, acq),
	"revoke_anybody": batch(exampleName, 1),
	"revoke":         example{}.and(exampleName, 1, acq),
	"revocations":    example{}.and(locker),
	"find_sweep":     example{}.and(60 * second),
	"sweep_due":      example{}.and(60 * second),
	"sweep_pause":    example{}.and(60 * second),
	"purge_pins":     batch(exampleName),
	"purge":          batch(exampleName).and(60 * second),
	"server":         {},
	"pin":            example{}.and(exampleName, "1s", "1000", "1000", "1", "1", "1", "1000", false, false),
	"make_pin":       example{}.and(exampleName),
	"set_holds":      batch(exampleName, acq, 1),
	"guarded":        example{}.and(exampleName, acq),
	"guard":          example{}.and(exampleName, acq, 1, other),
	"try_pin":        example{}.and(exampleName, other, 1, false),
	"lift":           example{}.and(1),
	"try":            batch(1, 2, false, exampleName, true).and(3),
	"pass":           batch(exampleName, acq).and(1),
	"unlock":         batch(1, false),
	"check_guards":   batch(1),
	"own_locks":      {},
	"note":           batch(exampleName, 1, acq, "owner", 1, 1, 1).and(locker, "label", 1, 1),
	"note_shared":    batch(exampleName, 1, 1, 1),
	"session":        batch("default_transaction_isolation", "read committed").and(1),
	"restore":        example{}.and("default_transaction_isolation", "read committed"),
	"guard_lock":     example{}.and(other, 1, 2, 3, 4),
	"try_lock":       example{}.and(1, other, 1, false),
}

var mysqlSessionExamples = map[string]example{
	"look":            batch(exampleName),
	"look_values":     batch(exampleName),
	"page":            example{}.and("", 10),
	"make_rows":       batch(exampleName),
	"draw":            example{}.and(acq, "owner", "key", 0, 0, exampleName, 1, other, locker, "label", 1, "value"),
	"draw_many":       batch(exampleName, acq, 1, other, "owner", "key", 0, 0).and(locker, "label", 1, 1),
	"end_term":        example{}.and(exampleName, 1, acq),
	"release":         batch(exampleName, acq, 1, 0).and(1),
	"set_value":       example{}.and(exampleName, 1, acq, "value"),
	"revoke_holder":   example{}.and(exampleName, 1, acq),
	"revoke":          example{}.and(exampleName, 1, acq),
	"revocations":     example{}.and(locker),
	"find_sweep":      example{}.and(60 * second),
	"sweep_due":       example{}.and(60 * second),
	"sweep_pause":     example{}.and(60 * second),
	"purge_pins":      batch(exampleName),
	"purge":           batch(exampleName).and(60 * second),
	"guard":           example{}.and(exampleName, 1, acq),
	"database":        {},
	"find_pins":       example{}.and(exampleName, exampleName),
	"make_pin":        example{}.and(exampleName),
	"pin":             example{}.and(exampleName),
	"pin_now":         example{}.and(exampleName),
	"pin_skip":        example{}.and(exampleName),
	"pin_shared":      example{}.and(exampleName),
	"pin_shared_now":  example{}.and(exampleName),
	"pin_shared_skip": example{}.and(exampleName),
	"pin_server":      example{}.and(exampleName),
	"server":          {},
	"settings":        {},
	"writable":        {},
	"mark":            example{}.and("a session"),
	"marked":          example{}.and("a session", "a session"),
	"unmark":          example{}.and("a session"),
	"lock":            batch(exampleName, acq),
	"lock_shared":     batch(exampleName, acq, 0),
	"unlock":          batch(exampleName),
	"readers":         batch(exampleName, acq),
}
