//go:build linux

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// stage is tests that are run at one time, as jobs beside each other: they wait for
// most of the time. A failure of one ends all.
type stage struct {
	jobs    []job
	timeout time.Duration // of a run, for a test that hangs
	again   time.Duration // of a run of one of its tests
}

// job is a run of the test binary of a package.
type job struct {
	pkg      string        // "." is the root
	run      string        // as -test.run has it
	parallel string        // as -test.parallel has it, "" for its default
	silence  time.Duration // that is taken for a hang, 0 for none
}

// suites knows which tests there are.
type suites struct {
	instant []string         // tests of the root in a synctest bubble, with fake time
	others  []string         // those of the root that are neither that nor conformance
	own     map[string][]job // tests of targets that have some outside of the root, by target
	shards  int
}

const conformanceTest = "TestConformance"

func newSuites(root string, shards int) (*suites, error) {
	s := &suites{shards: shards, own: make(map[string][]job)}
	tests, bubbles, err := testsOf(root)
	if err != nil {
		return nil, err
	}
	for _, name := range tests {
		switch {
		case bubbles[name]:
			s.instant = append(s.instant, name)
		case name != conformanceTest:
			s.others = append(s.others, name)
		}
	}
	for _, t := range targets {
		if t.tests == "" {
			continue
		}
		tests, _, err := testsOf(filepath.Join(root, t.tests))
		if err != nil {
			return nil, err
		}
		s.own[t.name] = s.sharded("./"+t.tests, tests)
	}
	return s, nil
}

// testsOf returns the tests of a package, and the functions that use synctest, directly
// or through others.
func testsOf(dir string) (tests []string, bubbles map[string]bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, nil, err
	}
	calls := make(map[string]map[string]bool)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			calls[f.Name.Name] = names(f)
			if strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				tests = append(tests, f.Name.Name)
			}
		}
	}
	bubbles = map[string]bool{"synctest": true}
	for again := true; again; {
		again = false
		for name, called := range calls {
			for other := range called {
				if bubbles[other] && !bubbles[name] {
					bubbles[name], again = true, true
				}
			}
		}
	}
	return tests, bubbles, nil
}

// names returns the names that a function uses, except those after a dot: a method may
// have the name of a function.
func names(n ast.Node) map[string]bool {
	all := make(map[string]bool)
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			maps.Copy(all, names(n.X))
			return false
		case *ast.Ident:
			all[n.Name] = true
		}
		return true
	})
	return all
}

// ofSessions are files of drivers for the modes that keep locks in sessions; of
// the others none but some serve these modes too.
var (
	ofSessions = regexp.MustCompile(`advisory|session|forupdate|/tx|watch|silence|/enter|/grab|/seat|/abandon`)
	ofAll      = regexp.MustCompile(`/batch|/errors|/store|/lockpg|/lockmysql|/inspect|/look|/fence|/election|/terms|queries\.go|sql/open|/draw|/moving|/state`)
)

// stages returns the stages that should notice a mutant, the cheapest first.
func (s *suites) stages(m *mutant) []stage {
	if !strings.HasPrefix(m.group, "lock") {
		pairs := []string{"unique on sqlite", "unique on postgres"}
		switch m.group {
		case "sessions":
			pairs = []string{"for update on postgres", "advisory on postgres"}
		case "quorum":
			pairs = []string{"quorum on sqlite"}
		}
		first := s.inNoTime()
		if own := s.own[m.group]; len(own) > 0 {
			first = stage{append(first.jobs, own...), 4 * time.Minute, 2 * time.Minute}
		}
		return []stage{
			first,
			conformance(pairs...),
			{s.sharded(".", s.others), 4 * time.Minute, 2 * time.Minute},
		}
	}
	own := stage{s.own[m.group], 4 * time.Minute, 2 * time.Minute}
	database := map[string]string{"locksqlite": "sqlite", "lockpg": "postgres", "lockmysql": "mariadb"}[m.group]
	var pairs []string
	if !ofSessions.MatchString(m.file) {
		pairs = append(pairs, "unique on "+database)
	}
	if database != "sqlite" && (ofSessions.MatchString(m.file) || ofAll.MatchString(m.file)) {
		pairs = append(pairs, "for update on "+database, "advisory on "+database)
	}
	return []stage{own, conformance(pairs...)}
}

// inNoTime is the stage of the tests with fake time.
func (s *suites) inNoTime() stage {
	return stage{[]job{{".", exactly(s.instant), "", 10 * time.Second}}, 3 * time.Minute, time.Minute}
}

func conformance(pairs ...string) stage {
	s := stage{timeout: 5 * time.Minute, again: 2 * time.Minute}
	for _, p := range pairs {
		s.jobs = append(s.jobs, job{".", alone(conformanceTest + "/" + strings.ReplaceAll(p, " ", "_")), "24", 0})
	}
	return s
}

// sharded deals tests to several jobs.
func (s *suites) sharded(pkg string, tests []string) (jobs []job) {
	shards := make([][]string, s.shards)
	for i, name := range tests {
		shards[i%s.shards] = append(shards[i%s.shards], name)
	}
	for _, names := range shards {
		if len(names) > 0 {
			jobs = append(jobs, job{pkg, exactly(names), "", 0})
		}
	}
	return jobs
}

// exactly is the pattern of top-level tests.
func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// alone is the pattern of one test, which may be a subtest.
func alone(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// packages returns the packages of the test binaries of a stage.
func (s *stage) packages() (all []string) {
	for _, j := range s.jobs {
		if !slices.Contains(all, j.pkg) {
			all = append(all, j.pkg)
		}
	}
	return all
}
