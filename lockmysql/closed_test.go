package lockmysql_test

import (
	"database/sql"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestAClosedHandleIsNotAskedAgain(t *testing.T) {
	db, err := sql.Open("mysql", "nobody@tcp(127.0.0.1:1)/nothing")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = db.Conn(t.Context())
	if fault := lockmysql.DB(db).Classify(err); fault != driver.Refused {
		t.Errorf("%v is %d, want Refused", err, fault)
	}
}
