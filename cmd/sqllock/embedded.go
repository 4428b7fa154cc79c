package main

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
)

// embeddedFile returns the path of the SQLite file that serves without a DSN.
func (a *app) embeddedFile() (string, error) {
	dir, err := a.stateDir()
	if err != nil {
		return "", noPlace(err)
	}
	return filepath.Join(dir, "sqllock", "locks.db"), nil
}

// makeDirectory makes the directory of that file, which nobody else may read: names
// of locks and labels are nobody else's business, and whoever may write there can
// take locks.
func makeDirectory(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return noPlace(err)
	}
	return nil
}

func noPlace(err error) error {
	return fail(exitUnavailable, "no place for the SQLite file: %w; name a database with --dsn or SQLLOCK_DSN", err)
}

// stateDir returns where programs of this user keep what must survive a restart.
func (a *app) stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		if dir := a.getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return a.underHome("AppData", "Local")
	case "darwin", "ios":
		return a.underHome("Library", "Application Support")
	}
	// The specification says to ignore relative paths.
	if dir := a.getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	return a.underHome(".local", "state")
}

func (a *app) underHome(elem ...string) (string, error) {
	home := a.getenv("HOME")
	if home == "" { // cron and service managers may start us without
		u, err := user.Current()
		if err != nil {
			return "", fmt.Errorf("no home directory: %w", err)
		}
		home = u.HomeDir
	}
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("the home directory %q is not an absolute path", home)
	}
	return filepath.Join(append([]string{home}, elem...)...), nil
}
