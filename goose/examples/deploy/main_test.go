package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

// envReplica makes the test binary the program.
const envReplica = "DEPLOY_TEST_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(envReplica) != "" {
		main()
		return
	}
	testdb.Main(m)
}

var outputPattern = regexp.MustCompile(`applied (\d) migrations, serving\n$`)

func TestOneOfThreeReplicasMigratesAndAllServe(t *testing.T) {
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			d := testdb.New(t, engine)
			outputs := make(chan string)
			for range 3 {
				cmd := exec.Command(os.Args[0], "-dsn", d.DSN())
				cmd.Env = append(os.Environ(), envReplica+"=1")
				go func() {
					out, err := cmd.CombinedOutput()
					if err != nil {
						out = fmt.Append(out, err)
					}
					outputs <- string(out)
				}()
			}
			var applied []string
			for range 3 {
				out := <-outputs
				m := outputPattern.FindStringSubmatch(out)
				if m == nil {
					t.Errorf("a replica said %q", out)
					continue
				}
				applied = append(applied, m[1])
			}
			if slices.Sort(applied); !slices.Equal(applied, []string{"0", "0", "2"}) {
				t.Errorf("they have applied %q migrations", applied)
			}
			var total int64
			if err := d.Open(t).QueryRowContext(t.Context(), `SELECT sum(amount) FROM orders`).Scan(&total); err != nil || total != 35000 {
				t.Errorf("the sum is %d, %v", total, err)
			}
		})
	}
}
