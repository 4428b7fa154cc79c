// Command release makes a release of the modules that users import, or rehearses one.
// See docs/releasing.md.
//
//	go -C tools run ./release v0.2.0
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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *rehearsal, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rehearsal bool, args []string) error {
	root, err := output(ctx, command{args: []string{"git", "rev-parse", "--show-toplevel"}})
	if err != nil {
		return err
	}
	root = filepath.Clean(root)
	switch {
	case rehearsal && len(args) == 0:
		return rehearse(ctx, root)
	case rehearsal || len(args) != 1:
		return errors.New("usage: release VERSION, or release -rehearse")
	}
	r := release{dir: root, version: args[0], day: time.Now().UTC().Format(time.DateOnly)}
	if err := r.make(ctx); err != nil {
		return err
	}
	fmt.Printf("%s is committed and tagged. Look at it (git show), then publish all of it at once:\n\n  %s\n", r.version, r.push())
	return nil
}
