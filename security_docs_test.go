package sqllock_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const security = "docs/security.md"

func TestEachPromiseOfTheSecurityGuideNamesTestsThatExist(t *testing.T) {
	source := testSource(t)
	rows, tests := proofs(t, security)
	n := 0
	for _, row := range rows {
		cited := citation.FindAllStringSubmatch(tests[row], -1)
		if !strings.HasPrefix(row, "X") {
			continue
		}
		n++
		if len(cited) == 0 {
			t.Errorf("row %q names no test: %q", row, tests[row])
		}
		for _, m := range cited {
			if m[1] != "" && !strings.Contains(source, `sentence: "`+m[1]+`"`) || m[2] != "" && !strings.Contains(source, "func "+m[2]+"(t *testing.T)") {
				t.Errorf("%s: there is no %s", row, m[0])
			}
		}
	}
	if n < 9 {
		t.Errorf("%d rows", n)
	}
	for _, file := range []string{security, "SECURITY.md"} {
		for _, m := range docLink.FindAllStringSubmatch(readDoc(t, file), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
