package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// platforms are those that there are archives for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// host is the platform of this host.
const host = runtime.GOOS + "/" + runtime.GOARCH

// ofHost is where the command for this host is, by the directory of what is common.
func ofHost(common string) string { return common + ".exe" }

// completions are the scripts by the shells that they are for.
var completions = map[string]string{"bash": "sqllock.bash", "zsh": "_sqllock", "fish": "sqllock.fish", "pwsh": "sqllock.ps1"}

// recipe is how the command is built.
type recipe struct{ env, flags []string }

// forUsers builds it without paths of this host, and without its C library. It compiles
// everything anew, which a rehearsal does not wait for.
var forUsers = recipe{env: []string{"CGO_ENABLED=0"}, flags: []string{"-trimpath"}}

// archives writes an archive of the command for each platform into dist, and SHA256SUMS. Each has
// the program, its manual page, completions for shells, and the licences of what is built in. The
// repository must be at the commit of the release.
func (r *release) archives(ctx context.Context, dist string, platforms []string, by recipe) (err error) {
	if tags, err := r.git(ctx, "tag", "--points-at", "HEAD"); err != nil || !strings.Contains("\n"+tags+"\n", "\n"+r.version+"\n") {
		return errors.Join(err, fmt.Errorf("the commit that is checked out is not %s", r.version))
	}
	work, err := os.MkdirTemp("", "sqllock-archives-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	common := filepath.Join(work, "common")
	if err := r.common(ctx, common, by); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, platform := range platforms {
		sum, err := r.archive(ctx, dist, work, common, platform, by)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		sums.WriteString(sum)
	}
	return os.WriteFile(filepath.Join(dist, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// build builds the command. Its version is that of the tag.
func (r *release) build(ctx context.Context, file, platform string, by recipe) error {
	system, processor, _ := strings.Cut(platform, "/")
	args := append([]string{"go", "build", "-buildvcs=true", "-ldflags=-s -w", "-o", file}, by.flags...)
	_, err := output(ctx, command{
		dir: r.dir, env: append([]string{"GOWORK=off", "GOOS=" + system, "GOARCH=" + processor}, by.env...), args: append(args, "./cmd/sqllock"),
	})
	return err
}

// common writes what is the same in all archives. The command for this host prints most of it.
func (r *release) common(ctx context.Context, dir string, by recipe) error {
	program := ofHost(dir)
	if err := r.build(ctx, program, host, by); err != nil {
		return err
	}
	files := make(map[string]string)
	printed := func(file string, args ...string) error {
		text, err := output(ctx, command{dir: r.dir, args: append([]string{program}, args...)})
		files[file] = text + "\n"
		return err
	}
	if err := printed("man/sqllock.1", "man"); err != nil {
		return err
	}
	for shell, file := range completions {
		if err := printed("completions/"+file, "completion", shell); err != nil {
			return err
		}
	}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(r.dir, file))
		if err != nil {
			return err
		}
		files[file] = string(text)
	}
	if err := r.licences(ctx, files); err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// licences adds the licences of the modules that are built in, and of Go.
func (r *release) licences(ctx context.Context, files map[string]string) error {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`
	modules, err := output(ctx, command{dir: r.dir, env: []string{"GOWORK=off"}, args: []string{"go", "list", "-deps", "-f", format, "./cmd/sqllock"}})
	if err != nil {
		return err
	}
	root, err := output(ctx, command{args: []string{"go", "env", "GOROOT"}})
	if err != nil {
		return err
	}
	for line := range strings.Lines(modules + "\ngo.dev " + root + "\n") {
		module, dir, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue
		}
		texts, err := filepath.Glob(filepath.Join(dir, "[LC][IO][CP][EY]*")) // LICENSE, LICENCE, COPYING
		if err != nil {
			return err
		}
		for _, file := range texts {
			if text, err := os.ReadFile(file); err == nil { // else it is a directory
				files[path.Join("licenses", module, filepath.Base(file))] = string(text)
			}
		}
	}
	return nil
}

// archive writes the archive for one platform. It returns its line of SHA256SUMS.
func (r *release) archive(ctx context.Context, dist, work, common, platform string, by recipe) (sum string, err error) {
	windows := strings.HasPrefix(platform, "windows/")
	name := "sqllock_" + strings.TrimPrefix(r.version, "v") + "_" + strings.ReplaceAll(platform, "/", "_")
	dir := filepath.Join(work, name)
	if err := os.CopyFS(dir, os.DirFS(common)); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "sqllock")
	if windows {
		program += ".exe"
	}
	if platform == host {
		err = os.Rename(ofHost(common), program)
	} else {
		err = r.build(ctx, program, platform, by)
	}
	if err != nil {
		return "", err
	}
	pack, ending := packTar, ".tar.gz"
	if windows {
		pack, ending = packZip, ".zip"
	}
	file, err := os.Create(filepath.Join(dist, name+ending))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close(), os.RemoveAll(dir)) }()
	hash := sha256.New()
	if err := pack(io.MultiWriter(file, hash), dir); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x  %s\n", hash.Sum(nil), name+ending), nil
}

func packTar(w io.Writer, dir string) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	err := eachFile(dir, func(name string, info fs.FileInfo, text []byte) error {
		header := &tar.Header{Name: name, Mode: int64(modeOf(name)), Size: int64(len(text)), ModTime: info.ModTime(), Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(text)
		return err
	})
	return errors.Join(err, archive.Close(), compressed.Close())
}

func packZip(w io.Writer, dir string) error {
	archive := zip.NewWriter(w)
	err := eachFile(dir, func(name string, info fs.FileInfo, text []byte) error {
		to, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: info.ModTime()})
		if err != nil {
			return err
		}
		_, err = to.Write(text)
		return err
	})
	return errors.Join(err, archive.Close())
}

// modeOf is the mode of a file in an archive: the program can be executed.
func modeOf(name string) fs.FileMode {
	if path.Base(name) == "sqllock" {
		return 0o755
	}
	return 0o644
}

// eachFile calls fn for each file in a directory. Names begin with that of the directory.
func eachFile(dir string, fn func(name string, info fs.FileInfo, text []byte) error) error {
	return filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(filepath.Dir(dir), file)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return fn(filepath.ToSlash(name), info, text)
	})
}
