package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// writeProxy makes a module proxy in a directory. The proxy has one version, from the
// tags of the repository. Changes that are not committed are not in it.
func writeProxy(ctx context.Context, proxy, repository, version string) error {
	for _, dir := range published {
		if err := writeModule(ctx, proxy, repository, dir, version); err != nil {
			return err
		}
	}
	return nil
}

func writeModule(ctx context.Context, proxy, repository, dir, version string) error {
	tag := tagOf(dir, version)
	mod, err := output(ctx, command{dir: repository, args: []string{"git", "show", tag + ":" + filepath.ToSlash(filepath.Join(dir, "go.mod"))}})
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	escaped, err := module.EscapePath(modulePath(dir))
	if err != nil {
		return err
	}
	versions := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".mod":  mod + "\n",
		version + ".info": string(info),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return writeZip(filepath.Join(versions, version+".zip"), repository, dir, version)
}

func writeZip(name, repository, dir, version string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	subdir := dir
	if dir == "." {
		subdir = ""
	}
	v := module.Version{Path: modulePath(dir), Version: version}
	err = zip.CreateFromVCS(file, v, repository, tagOf(dir, version), subdir)
	if end := file.Close(); err == nil {
		err = end
	}
	return err
}
