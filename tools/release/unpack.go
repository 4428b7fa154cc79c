package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// unpack makes the archive for this host, unpacks it as a user would, and uses what is in it.
func (u *user) unpack(ctx context.Context, work string, r *release) error {
	dist := filepath.Join(work, "dist")
	if err := r.archives(ctx, dist, []string{host}, recipe{}); err != nil {
		return err
	}
	name := "sqllock_" + strings.TrimPrefix(u.version, "v") + "_" + runtime.GOOS + "_" + runtime.GOARCH
	check := `sha256sum --quiet --check SHA256SUMS && tar xzf "$0.tar.gz" && cd "$0" && test -s LICENSE && test -s licenses/go.dev/LICENSE &&
		bash -n completions/sqllock.bash && test -s completions/_sqllock && test -s completions/sqllock.fish && test -s completions/sqllock.ps1 &&
		grep -q '^\.TH SQLLOCK 1' man/sqllock.1 && ./sqllock --version && ./sqllock run nightly -- sh -c 'echo $SQLLOCK_NAME'`
	printed, err := output(ctx, command{dir: dist, env: u.env, args: []string{"sh", "-c", check, name}})
	if err != nil {
		return err
	}
	version, rest, _ := strings.Cut(printed, "\n")
	if !strings.Contains(version, u.version) || strings.Contains(version, "dirty") || rest != "nightly" {
		return fmt.Errorf("the archived command printed %q", printed)
	}
	info, err := os.Stat(filepath.Join(dist, name+".tar.gz"))
	if err == nil {
		fmt.Printf("%s.tar.gz: unpacks, and holds a lock; %d MB\n", name, info.Size()>>20)
	}
	return err
}
