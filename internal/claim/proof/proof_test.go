package proof

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/clock"
)

var write = flag.Bool("write", false, "write proof.smt2 anew")

// hasZ3 reports that z3 can prove something. Its absence is a failure if databases are
// required, as in make test; else it is said, once.
func hasZ3(t *testing.T) bool {
	t.Helper()
	switch {
	case isInstalled():
		return true
	case os.Getenv("SQLLOCK_REQUIRE") != "":
		t.Fatal("z3 was not found: apt-get install z3, or scripts/setup.sh")
	}
	return false
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if !isInstalled() {
		fmt.Fprintln(os.Stderr, "sqllock: NOT covered: the proof of the rules of a name (z3 was not found)")
	}
	os.Exit(code)
}

func wholeModel(t *testing.T) *model {
	t.Helper()
	m, err := read(variant{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheWrittenProofIsMadeFromTheModel(t *testing.T) {
	script := wholeModel(t).wholeProof()
	if *write {
		if err := os.WriteFile("proof.smt2", []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile("proof.smt2")
	if err != nil || string(written) != script {
		t.Errorf("proof.smt2 is not what model.smt2 says: go test ./internal/claim/proof -args -write: %v", err)
	}
}

func TestTheRulesHoldForAnyNumberOfClients(t *testing.T) {
	if !hasZ3(t) {
		return
	}
	m := wholeModel(t)
	began, goals := time.Now(), m.goals()
	var halves [2][]goal
	for i, g := range goals {
		halves[i%2] = append(halves[i%2], g)
	}
	eachOf(halves[:], func(half []goal) {
		lines, err := run(t.Context(), m.prelude()+m.questions(half))
		if err != nil || len(lines) != 2*len(half) {
			t.Errorf("%v: of %d goals z3 said:\n%s", err, len(half), strings.Join(lines, "\n"))
			return
		}
		for i, g := range half {
			if lines[2*i] != g.name || lines[2*i+1] != "unsat" {
				t.Errorf("%s is not proved: z3 says %s of %s", g.name, lines[2*i+1], lines[2*i])
			}
		}
	})
	t.Logf("%d goals, proved for any number of clients in %.1f s", len(goals), time.Since(began).Seconds())
}

func TestTheMarginOfTheCodeIsThatOfTheModel(t *testing.T) {
	c, err := NewChecker(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []time.Duration{0, 1, 99, 100, 101, 2000, 1e6, 30e6, 86_400e6 + 7} {
		if got, want := c.Trusted(int64(ttl)), clock.Trust(ttl*time.Microsecond).Microseconds(); want > got || got-want > 1 {
			t.Errorf("of %d µs the code trusts %d, and the model %d", ttl, want, got)
		}
	}
}

func TestTheDocumentationSaysHowManyVariantsThereAre(t *testing.T) {
	page, err := os.ReadFile("../../../docs/correctness.md")
	if err != nil {
		t.Fatal(err)
	}
	if says := fmt.Sprintf("%d wrong variants", len(variants)); !strings.Contains(string(page), says) {
		t.Errorf("docs/correctness.md does not say %q", says)
	}
}

func TestZ3IsRequiredWithTheDatabases(t *testing.T) {
	c := exec.Command(os.Args[0], "-test.run=TestEachActionCanHappen")
	c.Env = append(os.Environ(), "PATH=", "SQLLOCK_REQUIRE=postgres")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "z3 was not found") {
		t.Errorf("%v: %s", err, out)
	}
	c = exec.Command(os.Args[0], "-test.run=TestEachActionCanHappen")
	c.Env = append(os.Environ(), "PATH=", "SQLLOCK_REQUIRE=")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "NOT covered: the proof") {
		t.Errorf("%v: %s", err, out)
	}
}
