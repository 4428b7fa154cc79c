package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestForUpdateMayBeWrittenWithADash(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]mode{"unique": unique, "forupdate": forUpdate, "for-update": forUpdate, "advisory": advisory, "for_update": "", "": "", "u": ""} {
		if got, err := parseMode(word); got != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q, %v", word, got, err)
		}
	}
}

func TestAModeThatTheDatabaseDoesNotOfferIsAUsageErrorAndMakesNothing(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	file := "sqlite:" + filepath.Join(u.home, "locks.db")
	for _, m := range []string{"forupdate", "for-update", "advisory"} {
		for _, args := range [][]string{
			{"run", "--mode", m, "n", "--", "echo", "ran"}, {"run", "n", "--shared", "--mode=" + m, "--", "echo", "ran"}, {"ls", "--mode", m},
			{"inspect", "--mode", m, "n"}, {"unlock", "--mode", m, "n", "--force"}, {"wait", "--mode", m, "n"}, {"ls", "--watch", "--mode", m},
		} {
			for _, dsn := range []string{"", file} {
				r := client{home: u.home, dsn: dsn}.run(t, args...)
				r.want(t, exitUsage, "", "SQLite does not offer the mode "+strings.ReplaceAll(m, "-", "")+", but unique")
				if r.out != "" || strings.Count(r.err, "\n") != 1 {
					t.Errorf("%q: %+v", args, r)
				}
			}
		}
	}
	if left, err := os.ReadDir(u.home); err != nil || len(left) > 0 {
		t.Errorf("it has left %v, %v", left, err)
	}
	u.run(t, "run", "--mode", "unique", "n", "--", "echo", "ran").want(t, 0, "ran", "")
}

func TestWhatDoesNotApplyToALockThatIsSharedIsRefusedWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	u := client{home: t.TempDir(), dsn: "postgres://u@127.0.0.1:1/d"}
	for _, flag := range [][]string{{"--min-hold", "1s"}, {"--value", "v"}, {"--value", ""}} {
		for _, m := range modes {
			args := append([]string{"run", "--shared", "--mode", string(m)}, append(flag, "n", "--", "echo", "ran")...)
			u.run(t, args...).want(t, exitUsage, "", "--min-hold and --value do not apply")
		}
	}
}
