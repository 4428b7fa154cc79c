package sqllock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	guarantees = "docs/guarantees.md"
	modes      = "docs/modes.md"
	operations = "docs/operations.md"
	design     = "docs/design.md"
	elections  = "docs/election.md"
	security   = "docs/security.md"

	correctness = "docs/correctness.md"
)

// readDoc returns a document.
func readDoc(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fenced is a block of code in a document.
type fenced struct {
	language string
	words    []string // that follow it
	text     string
}

var codeBlock = regexp.MustCompile("(?ms)^```(\\w*)([^\n]*)\n(.*?)^```$")

// docBlocks returns the blocks of one language.
func docBlocks(t *testing.T, file, language string) (found []fenced) {
	t.Helper()
	for _, m := range codeBlock.FindAllStringSubmatch(readDoc(t, file), -1) {
		if m[1] == language {
			found = append(found, fenced{m[1], strings.Fields(m[2]), m[3]})
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no block of %s", file, language)
	}
	return found
}

var (
	tableRow  = regexp.MustCompile(`^\| ([A-Z]\d+|[^|]+?) \|`)
	proofItem = regexp.MustCompile(`^- ([^:]+): (.*)$`)
	citation  = regexp.MustCompile("\"([^\"]+)\"|`(Test\\w+)`")
)

// proofs returns what a document says of the tests of each row of its tables, and
// the rows in their order. Below a table stands a list with an item per row.
func proofs(t *testing.T, file string) (rows []string, tests map[string]string) {
	t.Helper()
	tests = make(map[string]string)
	heading := false // the line before was no row
	for line := range strings.Lines(readDoc(t, file)) {
		line = strings.TrimRight(line, "\n")
		if m := proofItem.FindStringSubmatch(line); m != nil && slices.Contains(rows, m[1]) {
			tests[m[1]] = m[2]
		}
		m := tableRow.FindStringSubmatch(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			heading = true
		case heading:
			heading = false
		case m != nil && !strings.HasPrefix(line, "|---"):
			rows = append(rows, m[1])
		}
	}
	return rows, tests
}

func TestEachRowOfTheGuaranteesNamesItsTestsOrSaysThatThereAreNone(t *testing.T) {
	rows, tests := proofs(t, guarantees)
	if len(rows) < 36 {
		t.Errorf("%d rows were found: %q", len(rows), rows)
	}
	for i, row := range rows {
		if slices.Contains(rows[:i], row) {
			t.Errorf("two rows are named %q", row)
		}
		if text := tests[row]; !citation.MatchString(text) && !strings.Contains(text, "not tested yet") {
			t.Errorf("row %q names no test and does not say so: %q", row, text)
		}
	}
}

func TestEachFaultInTheTableOfModesNamesItsTests(t *testing.T) {
	rowsNameTheirTests(t, modes, faultRow, 10)
}

func TestEachPromiseOfElectionsNamesItsTests(t *testing.T) {
	rowsNameTheirTests(t, elections, promiseRow, 6)
}

func TestEachPromiseOfTheSecurityGuideNamesItsTests(t *testing.T) {
	rowsNameTheirTests(t, security, securityRow, 9)
}

// rowsNameTheirTests looks at the rows of a kind, of which there must be some.
func rowsNameTheirTests(t *testing.T, file string, kind *regexp.Regexp, least int) {
	t.Helper()
	rows, tests := proofs(t, file)
	n := 0
	for _, row := range rows {
		if kind.MatchString(row) {
			n++
			if !citation.MatchString(tests[row]) {
				t.Errorf("row %q names no test: %q", row, tests[row])
			}
		}
	}
	if n < least {
		t.Errorf("%d rows", n)
	}
}

var (
	promiseRow  = regexp.MustCompile(`^E\d+$`)
	securityRow = regexp.MustCompile(`^X\d+$`)
)

var faultRow = regexp.MustCompile(`^M\d+$`)

func TestTheTestsThatTheGuaranteesNameExist(t *testing.T) {
	source := testSource(t)
	for _, file := range []string{guarantees, modes, elections, security} {
		_, tests := proofs(t, file)
		for row, text := range tests {
			citedExist(t, source, file+": "+row, citation.FindAllStringSubmatch(text, -1))
		}
	}
}

func TestWhatFaultsHaveFoundHasATest(t *testing.T) {
	tests := slices.DeleteFunc(citation.FindAllStringSubmatch(readDoc(t, correctness), -1), func(m []string) bool { return m[2] == "" })
	if len(tests) < 4 {
		t.Errorf("%s names %d tests", correctness, len(tests))
	}
	citedExist(t, testSource(t), correctness, tests)
}

// citedExist looks for the promises and tests that a place in a document cites.
func citedExist(t *testing.T, source, where string, cited [][]string) {
	t.Helper()
	for _, m := range cited {
		switch sentence, name := m[1], m[2]; {
		case sentence != "" && !strings.Contains(source, `sentence: "`+sentence+`"`):
			t.Errorf("%s: no promise says %q", where, sentence)
		case name != "" && !strings.Contains(source, "func "+name+"(t *testing.T)"):
			t.Errorf("%s: there is no %s", where, name)
		}
	}
}

// testSource is the source of all tests.
func testSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "sqllocktest"+string(filepath.Separator)) {
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

var docLink = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)

func TestTheLinksBetweenDocumentsLeadSomewhere(t *testing.T) {
	for _, file := range []string{guarantees, modes, operations, design, elections, security, correctness, "docs/performance.md", "docs/databases.md", "docs/releasing.md", "SECURITY.md"} {
		for _, m := range docLink.FindAllStringSubmatch(readDoc(t, file), -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", file, err)
			} else if anchor != "" && !slices.Contains(anchors(readDoc(t, path)), anchor) {
				t.Errorf("%s: %s has no heading #%s", file, path, anchor)
			}
		}
	}
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 -]`)

// anchors are the headings as links name them.
func anchors(text string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			found = append(found, strings.ReplaceAll(notInAnchors.ReplaceAllString(heading, ""), " ", "-"))
		}
	}
	return found
}
