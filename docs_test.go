package sqllock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

const (
	guarantees      = "docs/guarantees.md"
	guaranteesTests = "docs/guarantees-tests.md"
	modes           = "docs/modes.md"
	operations      = "docs/operations.md"
	design          = "docs/design.md"
	elections       = "docs/election.md"
	onces           = "docs/once.md"
	semaphores      = "docs/semaphore.md"
	detaches        = "docs/detach.md"
	security        = "docs/security.md"

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

// An entry is a row of a table, or an item of a list, that begins with its identifier:
// "| C4 | …" or "- **C4. …". The tests of an entry stand in an item "- C4", in the same
// document or in guaranteesTests, with what is indented below it.
var (
	entryID   = regexp.MustCompile(`^(?:\| |- \*\*)([A-Z]\d+)\b`)
	testsItem = regexp.MustCompile(`^- ([A-Z]\d+)(?::|\s*$)`)
	citation  = regexp.MustCompile("\"([^\"]+)\"|`((?:Test|Fuzz|Benchmark)\\w+)`")
)

// entries returns the identifiers of a document's entries in their order.
func entries(t *testing.T, file string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(readDoc(t, file)) {
		if m := entryID.FindStringSubmatch(line); m != nil {
			if slices.Contains(ids, m[1]) {
				t.Errorf("%s: two entries are named %s", file, m[1])
			}
			ids = append(ids, m[1])
		}
	}
	return ids
}

// testsOf returns what a document says of the tests of each entry.
func testsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	tests := make(map[string]string)
	id := ""
	for line := range strings.Lines(readDoc(t, file)) {
		if m := testsItem.FindStringSubmatch(line); m != nil {
			id = m[1]
		} else if !strings.HasPrefix(line, "  ") {
			id = ""
		}
		if id != "" {
			tests[id] += " " + strings.TrimSpace(line)
		}
	}
	return tests
}

// TestEachGuaranteeNamesItsTests allows entries of the guarantees that no test shows, if
// the appendix says so. The other documents have none.
func TestEachGuaranteeNamesItsTests(t *testing.T) {
	tests := testsOf(t, guaranteesTests)
	var all []string
	for _, c := range []struct {
		file  string
		least int
	}{{guarantees, 71}, {modes, 10}, {elections, 6}, {onces, 6}, {semaphores, 7}, {detaches, 5}, {security, 9}} {
		ids := entries(t, c.file)
		if len(ids) < c.least {
			t.Errorf("%s has %d entries: %q", c.file, len(ids), ids)
		}
		if c.file == security {
			tests = testsOf(t, c.file)
		}
		for _, id := range ids {
			if !citation.MatchString(tests[id]) && !(c.file == guarantees && strings.Contains(tests[id], "not tested")) {
				t.Errorf("%s: %s names no test: %q", c.file, id, tests[id])
			}
		}
		all = append(all, ids...)
	}
	for id := range testsOf(t, guaranteesTests) {
		if !slices.Contains(all, id) {
			t.Errorf("%s: no document has an entry %s", guaranteesTests, id)
		}
	}
}

func TestTheTestsThatTheGuaranteesNameExist(t *testing.T) {
	source := testSource(t)
	for _, file := range []string{guaranteesTests, security} {
		for id, text := range testsOf(t, file) {
			citedExist(t, source, file+": "+id, citation.FindAllStringSubmatch(text, -1))
		}
	}
}

func TestTheTestsThatCorrectnessNamesExist(t *testing.T) {
	names := slices.DeleteFunc(citation.FindAllStringSubmatch(readDoc(t, correctness), -1), func(m []string) bool { return m[2] == "" })
	citedExist(t, testSource(t), correctness, names)
}

// TestEachBrokenPromiseNamesATestThatExists reads the lists of correctness.md: each item
// has a line "Test: …" below it.
func TestEachBrokenPromiseNamesATestThatExists(t *testing.T) {
	source := testSource(t)
	for _, c := range []struct {
		heading string
		least   int
	}{{"## What the faults have found\n", 7}, {"## Promises that broke under attack\n", 62}} {
		_, section, _ := strings.Cut(readDoc(t, correctness), c.heading)
		section, _, _ = strings.Cut(section, "\n## ")
		items := strings.Split("\n"+section, "\n- ")[1:]
		if len(items) < c.least {
			t.Errorf("%q has %d items", c.heading, len(items))
		}
		for _, item := range items {
			_, tests, _ := strings.Cut(strings.Join(strings.Fields(item), " "), " - Test: ")
			tests, _, _ = strings.Cut(tests, " - Before: ")
			cited := citation.FindAllStringSubmatch(tests, -1)
			if len(cited) == 0 {
				t.Errorf("%s: no test is named for %q", correctness, item)
			}
			citedExist(t, source, correctness, cited)
		}
	}
}

// citedExist looks for the promises and tests that a place in a document cites.
func citedExist(t *testing.T, source, where string, cited [][]string) {
	t.Helper()
	for _, m := range cited {
		switch sentence, name := m[1], m[2]; {
		case sentence != "" && !strings.Contains(source, `sentence: "`+sentence+`"`) && !strings.Contains(source, `"`+sentence+`": func(t *testing.T`):
			t.Errorf("%s: no promise says %q", where, sentence)
		case name != "" && !testFunctions(source)[name]:
			t.Errorf("%s: there is no %s", where, name)
		}
	}
}

// testFunctions are the names of the tests in a source. It is always the same one.
func testFunctions(source string) map[string]bool {
	testFunctionsOnce.Do(func() {
		for _, m := range regexp.MustCompile(`(?m)^func (\w+)\(\w+ \*testing\.[TFB]\)`).FindAllStringSubmatch(source, -1) {
			allTestFunctions[m[1]] = true
		}
	})
	return allTestFunctions
}

var (
	testFunctionsOnce sync.Once
	allTestFunctions  = make(map[string]bool)
)

// testSource is the source of all tests.
func testSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(path, "_test.go") || slices.Contains([]string{"conformance", "queuetest"}, filepath.Base(filepath.Dir(path))) {
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

// markdownFiles are all documents of the repository, those of its other modules too.
func markdownFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md") || d.Name() == "LICENSE":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// widestLine is how many characters a line of a document may have: a terminal shows so
// many beside another window.
const maxLineWidth = 100

func TestLinesOfDocumentsAreNarrow(t *testing.T) {
	for _, file := range markdownFiles(t) {
		for i, line := range strings.Split(readDoc(t, file), "\n") {
			if n := utf8.RuneCountInString(line); n > maxLineWidth {
				t.Errorf("%s:%d has %d characters, more than %d", file, i+1, n, maxLineWidth)
			}
		}
	}
}

var docLink = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)

func TestTheLinksBetweenDocumentsLeadSomewhere(t *testing.T) {
	for _, file := range markdownFiles(t) {
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
