package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// repository makes one with what a release looks at.
func repository(t *testing.T, files map[string]string) *release {
	t.Helper()
	r := &release{dir: t.TempDir(), version: "v0.2.0", day: "2030-01-31"}
	all := map[string]string{
		"go.mod":       "module " + core + "\n",
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n- a change\n\n## [0.1.0] - 2030-01-01\n\n- older\n",
	}
	for _, dir := range published[1:] {
		all[dir+"/go.mod"] = "module " + core + "/" + dir + "\n\nrequire " + core + " v0.1.0\n\nreplace " + core + " => ..\n"
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		file := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"init --quiet", "config user.name test", "config user.email test@localhost", "config commit.gpgSign false", "config tag.gpgSign false",
		"add .", "commit --quiet --message first", "tag v0.1.0",
	} {
		r.must(t, strings.Fields(args)...)
	}
	return r
}

func (r *release) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.git(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A module that asks for a later Go makes all of its users upgrade. The newest versions of what the
// adapters need ask for one.
func TestPublishedModulesNeedGo125(t *testing.T) {
	for _, dir := range published {
		name := filepath.Join("..", "..", dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if mod.Go.Version != "1.25.0" || mod.Toolchain != nil {
			t.Errorf("%s: go %s, toolchain %v; want go 1.25.0 alone", name, mod.Go.Version, mod.Toolchain)
		}
	}
}

func TestAReleaseTagsEveryModuleAtACommitThatRequiresIt(t *testing.T) {
	r := repository(t, nil)
	if err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "v0.2.0" // behind those with a path
	for _, dir := range slices.Backward(published[1:]) {
		want = dir + "/v0.2.0\n" + want
	}
	if got := r.must(t, "tag", "--points-at", "HEAD"); got != want {
		t.Errorf("tags %q, want %q", got, want)
	}
	for _, dir := range published[1:] {
		if mod := r.must(t, "show", dir+"/v0.2.0:"+dir+"/go.mod"); !strings.Contains(mod, "require "+core+" v0.2.0\n") {
			t.Errorf("%s: %s", dir, mod)
		}
	}
	want = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2030-01-31\n\n- a change\n\n## [0.1.0] - 2030-01-01\n\n- older"
	if got := r.must(t, "show", "HEAD:CHANGELOG.md"); got != want {
		t.Errorf("the changelog is\n%s\nwant\n%s", got, want)
	}
}

func TestMakeRefusesAnInvalidReleaseAndChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		version string
		change  bool
		says    string
	}{
		"a version without v":                  {version: "0.2.0", says: "not of the form"},
		"a version of two numbers":             {version: "v0.2", says: "not of the form"},
		"a major version with a path":          {version: "v2.0.0", says: "from v2 on"},
		"a version that exists":                {version: "v0.1.0", says: "not above the last one, v0.1.0"},
		"a candidate of a version that exists": {version: "v0.1.0-rc.1", says: "not above the last one, v0.1.0"},
		"changes that are not committed":       {change: true, says: "not committed"},
		"a module in neither list":             {files: map[string]string{"new/go.mod": "module x\n"}, says: "module new is neither"},
		"a core with a replace directive":      {files: map[string]string{"go.mod": "module " + core + "\n\nreplace x.org/y => ../y\n"}, says: "go install"},
		"an empty changelog section":           {files: map[string]string{"CHANGELOG.md": "## [Unreleased]\n\n## [0.1.0] - 2030-01-01\n\n- older\n"}, says: "section Unreleased is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			r := repository(t, c.files)
			if c.version != "" {
				r.version = c.version
			}
			if c.change {
				if err := os.WriteFile(filepath.Join(r.dir, "CHANGELOG.md"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			before := r.must(t, "status", "--porcelain")
			if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if after := r.must(t, "status", "--porcelain"); after != before {
				t.Errorf("the work tree was %q and is %q", before, after)
			}
			if tags := r.must(t, "tag"); tags != "v0.1.0" {
				t.Errorf("tags %q", tags)
			}
		})
	}
}

func TestARehearsalHasAVersionAboveTheLast(t *testing.T) {
	for last, want := range map[string]string{"": "v0.0.1", "v0.1.0": "v0.1.1", "v1.2.3": "v1.2.4", "v1.2.3-rc.1": "v1.2.4"} {
		if got := next(last); got != want {
			t.Errorf("after %q: %q, want %q", last, got, want)
		}
	}
}

func TestArchivesAreOfTheReleaseThatIsCheckedOut(t *testing.T) {
	r := repository(t, nil)
	dist := filepath.Join(t.TempDir(), "dist")
	if err := r.archives(t.Context(), dist, platforms, forUsers); err == nil || !strings.Contains(err.Error(), "is not v0.2.0") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dist); err == nil {
		t.Error("something was written")
	}
}

func TestAnArchiveHasAllFilesAndAProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sqllock_1_linux_amd64")
	want := map[string]fs.FileMode{"sqllock": 0o755, "man/sqllock.1": 0o644, "licenses/go.dev/LICENSE": 0o644}
	for name := range want {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("text of "+name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var tarred, zipped bytes.Buffer
	if err := errors.Join(packTar(&tarred, dir), packZip(&zipped, dir)); err != nil {
		t.Fatal(err)
	}
	decompressed, err := gzip.NewReader(&tarred)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]fs.FileMode)
	for archive := tar.NewReader(decompressed); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		text, _ := io.ReadAll(archive)
		name, below := strings.CutPrefix(header.Name, "sqllock_1_linux_amd64/")
		if err != nil || !below || string(text) != "text of "+name {
			t.Fatalf("%v: %+v has %q", err, header, text)
		}
		found[name] = header.FileInfo().Mode()
	}
	if !maps.Equal(found, want) {
		t.Errorf("the archive has %v", found)
	}
	archive, err := zip.NewReader(bytes.NewReader(zipped.Bytes()), int64(zipped.Len()))
	if err != nil || len(archive.File) != len(want) {
		t.Errorf("%v, %v", err, archive.File)
	}
}
