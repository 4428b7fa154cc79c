// Command release makes a release of the modules that users import, or rehearses one.
// See docs/releasing.md.
//
//	go -C tools run ./release v0.2.0
//	go -C tools run ./release -archives v0.2.0
//	go -C tools run ./release -rehearse
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	rehearsal := flag.Bool("rehearse", false, "release a copy, and use every module from outside of the repository")
	archives := flag.Bool("archives", false, "make the archives of a release that is checked out, and nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *rehearsal, *archives, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rehearsal, archives bool, args []string) error {
	root, err := output(ctx, command{args: []string{"git", "rev-parse", "--show-toplevel"}})
	if err != nil {
		return err
	}
	root = filepath.Clean(root)
	switch {
	case rehearsal && len(args) == 0:
		return rehearse(ctx, root)
	case rehearsal || len(args) != 1:
		return errors.New("usage: release VERSION, release -archives VERSION, or release -rehearse")
	}
	r := release{dir: root, version: args[0], day: time.Now().UTC().Format(time.DateOnly)}
	if !archives {
		if err := r.make(ctx); err != nil {
			return err
		}
		fmt.Printf("%s is committed and tagged. Look at it (git show), then publish all of it at once:\n\n  %s\n\n", r.version, r.push())
	}
	dist := filepath.Join(root, "dist")
	if err := r.archives(ctx, dist, platforms, forUsers); err != nil {
		return fmt.Errorf("the archives, which make archives VERSION=%s makes again: %w", r.version, err)
	}
	fmt.Printf("archives of the command for all platforms are in %s\n", dist)
	return nil
}
