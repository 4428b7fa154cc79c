package contender_test

import (
	"reflect"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/contender"
)

func TestASiteWithHooksHasAllThatThereAre(t *testing.T) {
	hooks := reflect.ValueOf(contender.CountingHooks()).Elem()
	for i := range hooks.NumField() {
		if hooks.Field(i).IsNil() {
			t.Errorf("the hook %s is not set", hooks.Type().Field(i).Name)
		}
	}
}
