package sqllock_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

// A client's wall clock may be stepped at any time. The way to be immune is not
// to read it: this test fails when somebody does.
func TestTheLockerNeverReadsTheWallClock(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	banned := map[string]bool{"Now": true, "Since": true, "Until": true}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "clock_other.go" { // where only the monotonic part is used
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && banned[sel.Sel.Name] {
					t.Errorf("%s: time.%s", fset.Position(sel.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestOnLinuxTheClockIsTheOneThatGoesOnDuringSuspend(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // there is no such clock: see the documentation of systemClock
	}
	before := sqllock.SystemNow()
	text, err := os.ReadFile("/proc/uptime") // CLOCK_BOOTTIME, in hundredths of a second
	after := sqllock.SystemNow()
	if err != nil {
		t.Fatal(err)
	}
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		t.Fatal(err)
	}
	uptime := time.Duration(seconds * float64(time.Second))
	const hundredth = 10 * time.Millisecond
	if uptime < before-hundredth || uptime > after+hundredth {
		t.Errorf("the clock says %v, the uptime is %v", before, uptime)
	}
}
