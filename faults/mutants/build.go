//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// binaries are the test binaries of one version of the library, built when needed.
type binaries struct {
	root, dir string
	temporary string // where tests put their files, which stay behind when they are ended
	overlay   string // "" for the library as it is
	built     map[string]string
}

// of returns the test binary of a package. The error has the output of the compiler.
func (b *binaries) of(ctx context.Context, pkg string) (string, error) {
	if path, ok := b.built[pkg]; ok {
		return path, nil
	}
	path := filepath.Join(b.dir, "tests-"+strings.Trim(filepath.Base(pkg), "."))
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", path}
	if b.overlay != "" {
		args = append(args, "-overlay", b.overlay)
	}
	c := exec.CommandContext(ctx, "go", append(args, pkg)...)
	c.Dir = b.root
	c.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	b.built[pkg] = path
	return path, nil
}

// plant writes a changed file, and returns the binaries of the library with it.
func plant(root, dir string, m *mutant) (*binaries, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if m.end > len(source) || string(source[m.begin:m.end]) != m.old {
		return nil, fmt.Errorf("%s has changed meanwhile", m.file)
	}
	changed := filepath.Join(dir, "changed"+filepath.Ext(m.file))
	if err := os.WriteFile(changed, m.apply(source), 0o644); err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): changed}})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return &binaries{root: root, dir: dir, temporary: filepath.Join(dir, "tmp"), overlay: overlay, built: make(map[string]string)}, os.WriteFile(overlay, text, 0o644)
}
