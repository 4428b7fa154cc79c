package driver_test

import (
	"reflect"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// maxMethods is how many methods a database has to implement for unique mode. What is new is a
// field of a request.
const maxMethods = 12

func TestAStoreHasFewMethods(t *testing.T) {
	if n := reflect.TypeFor[driver.Store]().NumMethod(); n > maxMethods {
		t.Errorf("driver.Store has %d methods, at most %d are allowed", n, maxMethods)
	}
}
