package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// userPrograms are programs that import a module of this project and have no other
// file of the repository.
//
//go:embed testdata
var userPrograms embed.FS

// rehearse releases a copy of the last commit. It uses every module of that release
// from outside of the repository, through a module proxy.
func rehearse(ctx context.Context, root string) (err error) {
	work, err := os.MkdirTemp("", "sqllock-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r, err := releaseOfCopy(ctx, root, filepath.Join(work, "copy"))
	if err != nil {
		return err
	}
	proxy := filepath.Join(work, "proxy")
	if err := writeProxy(ctx, proxy, r.dir, r.version); err != nil {
		return err
	}
	cache, err := output(ctx, command{args: []string{"go", "env", "GOMODCACHE"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, forget(cache, r.version)) }()
	// The cache also serves the dependencies. Fetch those that it lacks.
	for _, dir := range published {
		if _, err := output(ctx, command{dir: filepath.Join(r.dir, dir), env: []string{"GOWORK=off"}, args: []string{"go", "mod", "download"}}); err != nil {
			return err
		}
	}
	u := user{
		version: r.version,
		env: []string{
			"GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=-mod=mod -modcacherw", "GOSUMDB=off",
			"GOPROXY=" + fileURL(proxy) + "," + fileURL(filepath.Join(cache, "cache", "download")),
			"GOBIN=" + filepath.Join(work, "bin"), "XDG_STATE_HOME=" + filepath.Join(work, "state"),
		},
	}
	for _, dir := range published {
		if err := u.run(ctx, work, dir); err != nil {
			return fmt.Errorf("%s: %w", modulePath(dir), err)
		}
	}
	if err := u.install(ctx, work); err != nil {
		return err
	}
	return u.unpack(ctx, work, r)
}

func fileURL(dir string) string { return "file://" + path.Join("/", filepath.ToSlash(dir)) }

// releaseOfCopy makes the next release in a copy of the last commit. The version is
// unique, so that the module cache has nothing from an earlier rehearsal for it.
func releaseOfCopy(ctx context.Context, root, dir string) (*release, error) {
	if _, err := output(ctx, command{args: []string{"git", "clone", "--quiet", root, dir}}); err != nil {
		return nil, err
	}
	r := &release{dir: dir, day: time.Now().UTC().Format(time.DateOnly)}
	for _, config := range [][2]string{{"user.name", "rehearsal"}, {"user.email", "rehearsal@localhost"}, {"commit.gpgSign", "false"}, {"tag.gpgSign", "false"}} {
		if _, err := r.git(ctx, "config", config[0], config[1]); err != nil {
			return nil, err
		}
	}
	last, err := latest(ctx, dir)
	if err != nil {
		return nil, err
	}
	r.version = next(last) + "-rehearsal." + time.Now().UTC().Format("20060102150405")
	return r, r.make(ctx)
}

// next returns a version above last.
func next(last string) string {
	if last == "" {
		return "v0.0.1"
	}
	var major, minor, patch int
	_, _ = fmt.Sscanf(semver.Canonical(last), "v%d.%d.%d", &major, &minor, &patch) // it is valid
	return fmt.Sprintf("v%d.%d.%d", major, minor, patch+1)
}

// A user has a Go installation and no copy of the repository.
type user struct {
	version string
	env     []string
}

func (u *user) goIn(ctx context.Context, dir string, args ...string) (string, error) {
	return output(ctx, command{dir: dir, env: u.env, args: append([]string{"go"}, args...)})
}

// run writes a program that imports the module in the directory module of the
// repository, gets the module from the proxy, and runs the program.
func (u *user) run(ctx context.Context, work, module string) error {
	get := modulePath(module)
	name := path.Base(get)
	dir := filepath.Join(work, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	program, err := userPrograms.ReadFile(path.Join("testdata", name, "main.go"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), program, 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"mod", "init", "example.com/user"}, {"get", get + "@" + u.version}} {
		if _, err := u.goIn(ctx, dir, args...); err != nil {
			return err
		}
	}
	got, err := u.goIn(ctx, dir, "list", "-m", core)
	if err != nil {
		return err
	}
	if want := core + " " + u.version; got != want {
		return fmt.Errorf("it came with %q, not with %q", got, want)
	}
	printed, err := u.goIn(ctx, dir, "run", ".")
	if err == nil && printed != "held" {
		err = fmt.Errorf("the program printed %q", printed)
	}
	if err == nil {
		fmt.Printf("%s: compiles outside of the repository, and holds a lock\n", get)
	}
	return err
}

// install installs the command and runs something under a lock with it.
func (u *user) install(ctx context.Context, work string) error {
	command := core + "/cmd/sqllock"
	if _, err := u.goIn(ctx, work, "install", command+"@"+u.version); err != nil {
		return err
	}
	printed, err := output(ctx, commandOf(u, work, "run", "nightly", "--", "sh", "-c", "echo $SQLLOCK_NAME"))
	if err == nil && printed != "nightly" {
		err = fmt.Errorf("%s printed %q", command, printed)
	}
	if err != nil {
		return err
	}
	if printed, err = output(ctx, commandOf(u, work, "--version")); err == nil && !strings.Contains(printed, u.version) {
		err = fmt.Errorf("%s --version printed %q, without %s", command, printed, u.version)
	}
	if err == nil {
		fmt.Printf("%s: installs, and holds a lock\n", command)
	}
	return err
}

func commandOf(u *user, work string, args ...string) command {
	return command{dir: work, env: u.env, args: append([]string{filepath.Join(work, "bin", "sqllock")}, args...)}
}

// forget removes a version of the rehearsal from the module cache.
func forget(cache, version string) error {
	var errs []error
	for _, dir := range published {
		at := filepath.FromSlash(modulePath(dir))
		errs = append(errs, os.RemoveAll(filepath.Join(cache, at+"@"+version)))
		files, err := filepath.Glob(filepath.Join(cache, "cache", "download", at, "@v", version+".*"))
		errs = append(errs, err)
		for _, file := range files {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}
