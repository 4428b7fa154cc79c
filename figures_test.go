package sqllock_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	benchText = "bench/results/2026-11-26.txt"
	benchRows = "bench/results/2026-11-26.json"
	// largeText has the last figures of large tables, which take long to measure.
	largeText  = "bench/results/2026-11-21.txt"
	faultsText = "faults/results/2026-11-22.txt"
	// hourText has the hour of unique mode, whose histories were replayed.
	hourText = "faults/results/2026-11-26-hour.txt"

	plantedText = "faults/results/2026-11-22-planted.txt"

	killedKeysText = "internal/conformance/results/2026-11-24-once-killed.txt"

	// byHand is the source of figures without a file. The text says so too.
	byHand = "by hand"
)

// laterTexts have some workloads of benchText again, after the benchmark was mended.
var laterTexts = []string{"bench/results/2026-11-27-names-idle.txt", "bench/results/2026-11-27-waiters.txt"}

// figuresMark begins the comment above a table of measured figures that says what they
// are made from.
const figuresMark = "<!-- figures: "

// table is one in a document, without its heading.
type table struct {
	where   string
	source  string // what the mark above it says
	heading []string
	rows    [][]string
	before  string // the text from the last heading on
}

func (t *table) isMeasured() bool {
	n := 0
	for _, row := range t.rows {
		for _, cell := range row[1:] {
			if measuredFigure.MatchString(cell) {
				n++
			}
		}
	}
	return n >= 10
}

var measuredFigure = regexp.MustCompile(`^[\d,]+(\.\d+)?$`)

// tables returns those of a document.
func tables(t *testing.T, file string) (found []*table) {
	t.Helper()
	var open *table
	var source string
	var before []string
	for i, text := range strings.Split(readDoc(t, file), "\n") {
		mark, marked := strings.CutPrefix(text, figuresMark)
		switch {
		case strings.HasPrefix(text, "|---"):
			continue
		case strings.HasPrefix(text, "|"):
			cells := strings.Split(strings.Trim(text, "|"), "|")
			for k := range cells {
				cells[k] = strings.TrimSpace(cells[k])
			}
			if open == nil {
				open = &table{where: fmt.Sprintf("%s:%d", file, i+1), source: source, heading: cells, before: strings.Join(before, "\n")}
				found = append(found, open)
			} else {
				open.rows = append(open.rows, cells)
			}
			continue
		case marked:
			source = strings.TrimSuffix(mark, " -->")
			continue
		case strings.HasPrefix(text, "#"):
			before = nil
		}
		if open = nil; text != "" {
			source = ""
		}
		before = append(before, text)
	}
	return found
}

// figuresFrom are the tables of all documents that come from a source. There is one at
// least.
func figuresFrom(t *testing.T, source string) (found []*table) {
	t.Helper()
	for _, file := range documents(t) {
		for _, tab := range tables(t, file) {
			if tab.source == source {
				found = append(found, tab)
			}
		}
	}
	if len(found) == 0 {
		t.Errorf("no table comes from %q", source)
	}
	return found
}

func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(files, "README.md")
}

func TestEachTableOfMeasuredFiguresSaysWhereTheyComeFrom(t *testing.T) {
	compared := []string{benchText + " goals", largeText + " goals", benchRows + " cycles", faultsText + " nemeses", faultsText + " locks", hourText + " nemeses"}
	for _, text := range laterTexts {
		compared = append(compared, text+" goals")
	}
	for _, file := range documents(t) {
		for _, tab := range tables(t, file) {
			switch {
			case tab.source == byHand:
				if !strings.Contains(tab.before, "eported by hand") {
					t.Errorf("%s: the text above does not say that the figures were reported by hand", tab.where)
				}
			case tab.source == "" && tab.isMeasured():
				t.Errorf("%s: a line %q… names no source above the table of %q", tab.where, figuresMark, tab.heading)
			case strings.HasSuffix(tab.source, " output"):
				sameRows(t, tab, outputRows(readDoc(t, strings.TrimSuffix(tab.source, " output")), tab.heading))
			case tab.source != "" && !slices.Contains(compared, tab.source):
				t.Errorf("%s: nothing compares figures from %q", tab.where, tab.source)
			}
		}
	}
}

// shorterGoal writes a goal of a run as the documents do, whose tables are narrow.
var shorterGoal = strings.NewReplacer(", sqllock/postgres/unique", ", postgres", ", sqllock/mariadb/unique", ", mariadb", "sqllock/", "",
	"time of a cycle by that of a durable and an unflushed UPDATE", "cycle by its two UPDATEs",
	"time of a cycle by that of its two UPDATEs", "cycle by its two UPDATEs", "hand-over between two processes", "hand-over", "a neighbour's NOTIFY", "NOTIFY of others",
	"must ", "", "MISSED", "missed", " 1 callers", " 1 caller")

// goalsOf returns the goals that a run of the benchmark has measured, as the documents write
// them.
func goalsOf(t *testing.T, file string) (goals [][]string) {
	t.Helper()
	_, text, _ := strings.Cut(readDoc(t, file), "\ngoals (")
	for row := range strings.Lines(text) {
		cells := outputGap.Split(strings.TrimSpace(row), -1)
		if len(cells) != 4 {
			continue
		}
		for i := range cells {
			cells[i] = shorterGoal.Replace(cells[i])
		}
		goals = append(goals, []string{cells[3], cells[1], cells[0], cells[2]})
	}
	return goals
}

// TestTheGoalsInTheDocumentsAreThoseOfTheRun finds each row in the run that the mark above its
// table names. All tables of goals together have each goal once, as the last run that has it
// measured it.
func TestTheGoalsInTheDocumentsAreThoseOfTheRun(t *testing.T) {
	var want [][]string
	missed := 0
	all := &table{where: "the goals in the documents"}
	for _, source := range append(slices.Clone(laterTexts), benchText) {
		goals := goalsOf(t, source)
		for _, goal := range goals {
			if slices.ContainsFunc(want, func(later []string) bool { return later[0] == goal[0] }) {
				continue
			}
			if want = append(want, goal); goal[3] == "missed" {
				missed++
			}
		}
		for _, tab := range figuresFrom(t, source+" goals") {
			for _, row := range tab.rows {
				if !slices.ContainsFunc(goals, func(goal []string) bool { return slices.Equal(goal, row) }) {
					t.Errorf("%s: %s does not have the row %q", tab.where, source, row)
				}
			}
			all.rows = append(all.rows, tab.rows...)
		}
	}
	byGoal := func(a, b []string) int { return strings.Compare(a[0], b[0]) }
	slices.SortFunc(all.rows, byGoal)
	slices.SortFunc(want, byGoal)
	sameRows(t, all, want)

	old := goalsOf(t, largeText)
	ofLargeTables := slices.DeleteFunc(slices.Clone(old), func(row []string) bool { return !strings.HasPrefix(row[0], "time with 10⁶ rows") })
	for _, tab := range figuresFrom(t, largeText+" goals") {
		sameRows(t, tab, ofLargeTables)
	}

	text := strings.Join(strings.Fields(readDoc(t, "docs/performance.md")), " ")
	for _, sentence := range []string{
		fmt.Sprintf("%d of these %d goals are missed.", missed, len(want)),
		fmt.Sprintf("a hand-over took %s statements", measuredGoal(old, "statements per hand-over, 500 waiters, postgres")),
	} {
		if !strings.Contains(text, sentence) {
			t.Errorf("docs/performance.md does not say %q", sentence)
		}
	}
}

// measuredGoal returns what was measured for one of the goals.
func measuredGoal(goals [][]string, goal string) string {
	for _, row := range goals {
		if row[0] == goal {
			return row[2]
		}
	}
	return "no such goal"
}

func TestTheThroughputInTheReadmeIsThatOfTheRun(t *testing.T) {
	contenders := map[string]string{
		"**sqllock**, Postgres, unique":     "sqllock/postgres/unique",
		"**sqllock**, Postgres, advisory":   "sqllock/postgres/advisory",
		"**sqllock**, Postgres, for update": "sqllock/postgres/forupdate",
		"**sqllock**, MariaDB, unique":      "sqllock/mariadb/unique",
		"**sqllock**, MariaDB, advisory":    "sqllock/mariadb/advisory",
		"**sqllock**, SQLite, unique":       "sqllock/sqlite/unique",
		"rueidis":                           "rueidis",
		"rueidis, appendfsync always":       "rueidis/always",
		"redislock":                         "redislock",
		"redislock, appendfsync always":     "redislock/always",
		"etcd":                              "etcd",
		"ZooKeeper":                         "zookeeper",
	}
	var results struct {
		Rows []struct {
			Workload, Contender string
			Callers             int
			Durable             bool
			Cycles              float64 `json:"cycles_per_s"`
		}
	}
	if err := json.Unmarshal([]byte(readDoc(t, benchRows)), &results); err != nil {
		t.Fatal(err)
	}
	of := func(contender string, callers int) string {
		for _, r := range results.Rows {
			if r.Workload == "distinct" && r.Contender == contender && r.Callers == callers {
				return thousands(int(r.Cycles + 0.5))
			}
		}
		return "—"
	}
	for _, tab := range figuresFrom(t, benchRows+" cycles") {
		var want [][]string
		for _, row := range tab.rows {
			c := contenders[row[0]]
			durable := "no"
			for _, r := range results.Rows {
				if r.Contender == c && r.Durable {
					durable = "yes"
				}
			}
			want = append(want, []string{row[0], durable, of(c, 1), of(c, 16), of(c, 64), of(c, 256), of(c, 1024)})
		}
		sameRows(t, tab, want)
	}
}

var (
	faultCell  = regexp.MustCompile(`(?m)^(?:ok|FAIL) +([\w-]+)/(\w+)/(\w+):`)
	faultSums  = regexp.MustCompile(`(?m)^ +([\w-]+) +(\w+) +(\w+)((?: +\d+){12})$`)
	faultInAll = regexp.MustCompile(`(?m)^in all: (\d+) runs of cells, (\d+) acquisitions, (\d+) hand-overs, (\d+) faults`)
)

func TestTheFaultsInTheDocumentsAreThoseOfTheRun(t *testing.T) {
	// The first run is the long one; of the second the text tells the sums.
	runs := strings.SplitAfter(readDoc(t, faultsText), " failures\n")
	hour := readDoc(t, hourText)
	for source, run := range map[string]string{faultsText + " nemeses": runs[0], faultsText + " locks": runs[0], hourText + " nemeses": hour} {
		for _, tab := range figuresFrom(t, source) {
			var want [][]string
			for _, row := range tab.rows {
				want = append(want, faultRowOf(run, row[0]))
			}
			sameRows(t, tab, want)
		}
	}
	text := readDoc(t, correctness)
	for _, run := range []string{runs[0], runs[1], hour} {
		for _, n := range faultInAll.FindStringSubmatch(run)[1:] {
			count, _ := strconv.Atoi(n)
			if !strings.Contains(text, thousands(count)) {
				t.Errorf("%s does not tell %s", correctness, thousands(count))
			}
		}
	}
}

func TestTheNumberOfPlantedBugsInTheDocumentsIsThatOfTheRun(t *testing.T) {
	rows := outputRows(readDoc(t, plantedText), []string{"bug", "caught by", "seconds"})
	tests, checks := 0, 0
	for _, row := range rows {
		switch {
		case strings.HasPrefix(row[1], "Test"):
			tests++
		case strings.Contains(row[1], " in "): // a cell
			checks++
		}
	}
	text := strings.Join(strings.Fields(readDoc(t, correctness)), " ")
	sentence := fmt.Sprintf("Of %d mistakes, tests noticed %d, and checks of the faults noticed the other %d.", len(rows), tests, checks)
	if tests+checks != len(rows) || len(rows) == 0 || !strings.Contains(text, sentence) {
		t.Errorf("%s does not say %q", correctness, sentence)
	}
}

// faultRowOf sums up what a run says of a nemesis, of "mode, database", or of "all".
func faultRowOf(run, label string) []string {
	is := func(nemesis, mode, database string) bool {
		return label == "all" || label == nemesis || label == mode+", "+database
	}
	cells := 0
	for _, m := range faultCell.FindAllStringSubmatch(run, -1) {
		if is(m[1], m[2], m[3]) {
			cells++
		}
	}
	sums := make([]int, 12)
	for _, m := range faultSums.FindAllStringSubmatch(run, -1) {
		if m[2] == "all" || !is(m[1], m[2], m[3]) {
			continue
		}
		for i, field := range strings.Fields(m[4]) {
			n, _ := strconv.Atoi(field)
			sums[i] += n
		}
	}
	row := []string{label, strconv.Itoa(cells)}
	for _, n := range sums {
		row = append(row, thousands(n))
	}
	return row
}

var outputGap = regexp.MustCompile(` {2,}`)

// outputRows returns the rows of a table in what a program printed: in Markdown, or with
// columns two spaces apart. It is the one whose heading begins with the first two cells
// of a heading; of more columns than that has the first are taken.
func outputRows(output string, heading []string) (rows [][]string) {
	found := false
	for row := range strings.Lines(output) {
		row = strings.TrimSpace(row)
		cells := outputGap.Split(row, -1)
		if strings.HasPrefix(row, "|") {
			cells = strings.Split(strings.Trim(row, "|"), "|")
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(row, "|--"):
		case found && len(cells) < len(heading):
			return rows
		case found:
			rows = append(rows, cells[:len(heading)])
		case len(cells) >= len(heading):
			found = slices.Equal(cells[:2], heading[:2])
		}
	}
	return rows
}

func TestATableIsFoundInWhatAProgramPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		output  string
		heading []string
	}{
		"peers":   {"\nSeed 1\n\n| system | fault | faults |\n|---|---|---|\n| a      | b c   | 1      |\n| d | e | 2 |\n\n| system | its token |\n", []string{"system", "fault", "faults"}},
		"planted": {"bug  caught by  seconds\na    b c        1\nd    e          2\n", []string{"bug", "caught by", "seconds"}},
		"mutants": {"mutant  change  killed by  seconds\nx:1  y  z  4\n\ntarget  mutants  killed  per cent  unclear\na  b c  1  9  0\nd  e  2  9  0\nsurvived: x\n", []string{"target", "mutants", "killed"}},
	} {
		if got, want := fmt.Sprint(outputRows(c.output, c.heading)), "[[a b c 1] [d e 2]]"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func sameRows(t *testing.T, tab *table, want [][]string) {
	t.Helper()
	if len(tab.rows) != len(want) {
		t.Errorf("%s: %d rows, the results have %d", tab.where, len(tab.rows), len(want))
	}
	for i := range min(len(tab.rows), len(want)) {
		if !slices.Equal(tab.rows[i], want[i]) {
			t.Errorf("%s: row %d is\n%q, the results have\n%q", tab.where, i+1, tab.rows[i], want[i])
		}
	}
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

const (
	schedulesText        = "internal/schedule/results/2026-11-23.txt"
	plantedSchedulesText = "faults/results/2026-11-23-planted-schedules.txt"
	plantedAroundText    = "faults/results/2026-11-26-planted-around.txt"
)

func TestTheSchedulesInTheDocumentsAreThoseOfTheRun(t *testing.T) {
	text := strings.Join(strings.Fields(readDoc(t, correctness)), " ")
	var all []string
	for row := range strings.Lines(readDoc(t, schedulesText)) {
		if cells := strings.Fields(row); len(cells) == 7 && cells[0] == "all" {
			for _, cell := range cells[1:] {
				n, _ := strconv.Atoi(cell)
				all = append(all, thousands(n))
			}
		}
	}
	if len(all) != 6 {
		t.Fatalf("%s has no sums", schedulesText)
	}
	sentence := fmt.Sprintf("%s schedules with %s calls of the database and %s faults. Of %s leases %s were lost. %s schedules failed.",
		all[0], all[1], all[2], all[3], all[4], all[5])
	if !strings.Contains(text, sentence) {
		t.Errorf("%s does not say %q", correctness, sentence)
	}
}

func TestTheKeysInTheDocumentsAreThoseOfTheRun(t *testing.T) {
	text := readDoc(t, killedKeysText)
	runs := regexp.MustCompile(`: (\d+) keys, each completed once: (\d+) kills, (\d+) attempts`).FindAllStringSubmatch(text, -1)
	if len(runs) != 3 || strings.Count(text, "--- PASS: ") != 3 {
		t.Fatalf("%s has %d runs", killedKeysText, len(runs))
	}
	each := func(i int) string {
		var words [3]any
		for k, run := range runs {
			n, _ := strconv.Atoi(run[i])
			words[k] = thousands(n)
		}
		return fmt.Sprintf("%s, %s and %s", words[:]...)
	}
	document := strings.Join(strings.Fields(readDoc(t, correctness)), " ")
	for _, sentence := range []string{
		"exactly once, with " + each(2) + " kills, in " + each(3) + " attempts.", "of " + strings.Split(each(1), ", ")[0] + " keys on each of",
	} {
		if !strings.Contains(document, sentence) {
			t.Errorf("%s does not say %q", correctness, sentence)
		}
	}
}

func TestTheNumberOfMistakesThatTheSchedulesNoticedIsThatOfTheRun(t *testing.T) {
	text := strings.Join(strings.Fields(readDoc(t, correctness)), " ")
	byTests, rows := 0, outputRows(readDoc(t, plantedSchedulesText), []string{"bug", "caught by", "seconds"})
	for _, row := range rows {
		if row[1] == "TestSchedules" {
			byTests++
		}
	}
	sentence := fmt.Sprintf("Of %d further mistakes in the engine, the schedules noticed %d", len(rows), byTests)
	if len(rows) == 0 || !strings.Contains(text, sentence) {
		t.Errorf("%s does not say %q", correctness, sentence)
	}
}

func TestTheNumberOfMistakesAroundALockIsThatOfTheRun(t *testing.T) {
	text := strings.Join(strings.Fields(readDoc(t, correctness)), " ")
	around := outputRows(readDoc(t, plantedAroundText), []string{"bug", "caught by", "seconds"})
	sentence := fmt.Sprintf("Of %d mistakes in what stands around a lock", len(around))
	if len(around) == 0 || !strings.Contains(text, sentence) {
		t.Errorf("%s does not say %q", correctness, sentence)
	}
}

var replayed = regexp.MustCompile(`(?m)^replayed: (\d+) operations, (\d+) changes of names; not explained: (\d+); too hard: (\d+)$`)

func TestTheOperationsOfTheReplayInTheDocumentsAreThoseOfTheRuns(t *testing.T) {
	var sums [4]int
	for _, run := range replayed.FindAllStringSubmatch(readDoc(t, hourText), -1) {
		for i := range sums {
			n, err := strconv.Atoi(run[i+1])
			if err != nil {
				t.Fatal(err)
			}
			sums[i] += n
		}
	}
	want := fmt.Sprintf("%s operations and %s changes were explained; %d changes were not, and %d were too hard.",
		thousands(sums[0]), thousands(sums[1]), sums[2], sums[3])
	if text := strings.Join(strings.Fields(readDoc(t, correctness)), " "); !strings.Contains(text, want) {
		t.Errorf("%s does not say: %s", correctness, want)
	}
}
