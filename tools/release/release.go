package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// core is the path of the root module, which the others require.
const core = "github.com/sqllock/sqllock"

var (
	// published are the directories of the modules that users import. Each gets the
	// version of the release.
	published = []string{".", "certmagic", "cron", "gocron", "golangmigrate", "goose", "k8s", "otel"}
	// private are the directories of the other modules, which have no tags.
	private = []string{"bench", "containers", "faults", "lockpg/libpqtest", "matrix", "recipes", "tools"}
)

// modulePath returns the path of the module in a directory.
func modulePath(dir string) string { return path.Join(core, dir) }

// tagOf returns the tag that makes a version of the module in a directory.
func tagOf(dir, version string) string { return path.Join(dir, version) }

// A release is a version that is made from the repository in dir.
type release struct {
	dir, version, day string
}

// make writes the version into the files that name it, commits them and tags the
// commit. It publishes nothing. If it fails before the commit, git restore undoes it.
func (r *release) make(ctx context.Context) error {
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := r.writeChangelog(); err != nil {
		return err
	}
	for _, dir := range published {
		if dir == "." {
			continue
		}
		if err := require(filepath.Join(r.dir, dir, "go.mod"), r.version); err != nil {
			return err
		}
	}
	if _, err := r.git(ctx, "commit", "--all", "--quiet", "--message", "release: "+r.version); err != nil {
		return err
	}
	for _, dir := range published {
		tag := tagOf(dir, r.version)
		if _, err := r.git(ctx, "tag", "--annotate", "--message", modulePath(dir)+" "+r.version, tag); err != nil {
			return err
		}
	}
	return nil
}

// push is the command that publishes a release: all of it, or nothing.
func (r *release) push() string {
	refs := make([]string, len(published))
	for i, dir := range published {
		refs[i] = tagOf(dir, r.version)
	}
	return "git push --atomic origin HEAD " + strings.Join(refs, " ")
}

// check returns an error if the version cannot be released from the work tree.
func (r *release) check(ctx context.Context) error {
	if err := checkVersion(r.version); err != nil {
		return err
	}
	changed, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the work tree has changes that are not committed:\n%s", changed)
	}
	last, err := latest(ctx, r.dir)
	if err != nil {
		return err
	}
	if semver.Compare(r.version, last) <= 0 {
		return fmt.Errorf("version %s is not above the last one, %s", r.version, last)
	}
	return checkModules(r.dir)
}

func checkVersion(version string) error {
	switch {
	case !semver.IsValid(version) || semver.Canonical(version) != version:
		return fmt.Errorf("version %q is not of the form v1.2.3 or v1.2.3-rc.1", version)
	case semver.Major(version) != "v0" && semver.Major(version) != "v1":
		return fmt.Errorf("version %s: from v2 on the path of a module ends with its major version", version)
	}
	return nil
}

// latest returns the highest version that has a tag, or "" if there is none.
func latest(ctx context.Context, dir string) (string, error) {
	tags, err := output(ctx, command{dir: dir, args: []string{"git", "tag", "--list", "v*"}})
	if err != nil {
		return "", err
	}
	return slices.MaxFunc(append(strings.Fields(tags), ""), semver.Compare), nil
}

// checkModules returns an error if a module is neither in published nor in private, or
// if go install would refuse the root module.
func checkModules(root string) error {
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err == nil && !slices.Contains(published, filepath.ToSlash(dir)) && !slices.Contains(private, filepath.ToSlash(dir)) {
			err = fmt.Errorf("module %s is neither published nor private: add it to tools/release/release.go", dir)
		}
		return err
	})
	if err != nil {
		return err
	}
	file := filepath.Join(root, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(file, text, nil)
	if err == nil && len(mod.Replace)+len(mod.Exclude) > 0 {
		err = errors.New("the root module replaces or excludes others: go install of its commands would be refused")
	}
	return err
}

// require makes a module require the given version of the core, which does not exist
// yet. The replace directive stays: it is for this repository, and users' builds ignore
// it.
func require(file, version string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(file, text, nil)
	if err != nil {
		return err
	}
	if err := mod.AddRequire(core, version); err != nil {
		return err
	}
	if text, err = mod.Format(); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

const unreleased = "## [Unreleased]\n"

// writeChangelog moves the unreleased changes under a heading with the version and day.
func (r *release) writeChangelog() error {
	file := filepath.Join(r.dir, "CHANGELOG.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := released(string(text), r.version, r.day)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

func released(changelog, version, day string) (string, error) {
	before, after, found := strings.Cut(changelog, unreleased)
	if !found {
		return "", fmt.Errorf("there is no heading %q", strings.TrimSpace(unreleased))
	}
	changes, _, _ := strings.Cut(after, "\n## ")
	if strings.TrimSpace(changes) == "" {
		return "", errors.New("the section Unreleased is empty")
	}
	return fmt.Sprintf("%s%s\n## [%s] - %s\n%s", before, unreleased, strings.TrimPrefix(version, "v"), day, after), nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, command{dir: r.dir, args: append([]string{"git"}, args...)})
}
