package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/driver"
)

func TestFlagsThatAllowWhatIsRefusedAreRefusedWhereTheyMeanNothing(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	const pg, my = "--dsn postgres://127.0.0.1:1/d ", "--dsn mysql://127.0.0.1:1/d "
	for args, want := range map[string]string{
		"--allow-unsafe-durability ls":                    "--allow-unsafe-durability is for Postgres, MySQL and MariaDB only",
		pg + "--allow-unsafe-durability doctor":           "--allow-unsafe-durability is not for doctor",
		pg + "--allow-unsafe-durability init --yes":       "--allow-unsafe-durability is not for init",
		my + "--allow-unsafe-durability migrate up":       "migrate takes none of --allow-unsafe-durability, ",
		pg + "--allow-session-pooler migrate copy d":      "migrate takes none of --allow-unsafe-durability, ",
		my + "--allow-session-pooler ls":                  "--allow-session-pooler and --allow-silent-holders are for Postgres only",
		my + "run --allow-silent-holders n -- true":       "--allow-session-pooler and --allow-silent-holders are for Postgres only",
		pg + "run --allow-session-pooler n -- true":       "--allow-session-pooler is for the modes forupdate and advisory only; see --mode",
		pg + "inspect --allow-silent-holders n":           "--allow-silent-holders is for the mode advisory only; see --mode",
		pg + "--allow-silent-holders ls --mode forupdate": "--allow-silent-holders is for the mode advisory only; see --mode",
	} {
		u.run(t, strings.Fields(args)...).want(t, exitUsage, "", want)
	}
}

// refusingAdvisory notes the options with which advisory mode is opened, and opens nothing.
type refusingAdvisory struct {
	locks
	opts driver.SessionOptions
}

var errNotOpened = errors.New("not opened")

func (r *refusingAdvisory) OpenAdvisory(_ context.Context, _ driver.Client, opts driver.SessionOptions) (driver.SessionStore, error) {
	r.opts = opts
	return nil, errNotOpened
}

func (r *refusingAdvisory) Classify(error) driver.Fault { return driver.Refused }

func TestSilentHoldersAreAllowedByTheirFlag(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--allow-silent-holders"}} {
		a := testApp()
		root := a.root()
		root.Command("ls").Action = func(ctx context.Context, cmd *cli.Command) error {
			d, err := a.existing(cmd, true)
			if err != nil {
				return err
			}
			defer d.close(ctx)
			seen := &refusingAdvisory{locks: d.locks}
			d.locks = seen
			if _, err := d.openLocker(ctx, advisory, quietOptions()); err == nil || seen.opts.TTL == 0 {
				t.Errorf("%q: advisory mode was not opened: %v", flags, err)
			}
			if seen.opts.AllowSilentHolders != (flags != nil) {
				t.Errorf("%q: %+v", flags, seen.opts)
			}
			return nil
		}
		if err := root.Run(t.Context(), append([]string{"sqllock", "--dsn", "postgres://127.0.0.1:1/d", "ls"}, flags...)); err != nil {
			t.Errorf("%q: %v", flags, err)
		}
	}
}

func TestTheProgramOfInitAllowsASessionPoolerIfInitDoes(t *testing.T) {
	t.Parallel()
	text, err := program(target{settings: settings{prefix: "p_", sessionPooler: true}, product: "postgres"})
	if err != nil || !strings.Contains(string(text), `lockpg.DB(db, lockpg.TablePrefix("p_"), lockpg.AllowSessionPooler())`) {
		t.Errorf("%v, and:\n%s", err, text)
	}
}

func TestErrorsNameFlagsForTheOptionsOfTheLibrary(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"fsync is off; lockpg.AllowUnsafeDurability accepts that in tests":     "fsync is off; --allow-unsafe-durability accepts that in tests",
		"not 1; lockmysql.AllowUnsafeDurability accepts that in tests":         "not 1; --allow-unsafe-durability accepts that in tests",
		"a pooler; lockpg.AllowSessionPooler accepts a pooler in session mode": "a pooler; --allow-session-pooler accepts a pooler in session mode",
		"for update, or accept that with AdvisoryOptions.AllowSilentHolders":   "for update, or accept that with --allow-silent-holders",
	} {
		if got := (flagError{errors.New(text)}).Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
