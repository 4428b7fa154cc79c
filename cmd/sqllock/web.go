package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/web"
)

func (a *app) webCommand() *cli.Command {
	return &cli.Command{
		Name:            "web",
		Usage:           "show the locks on a page in the browser",
		Description:     webDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8080", Usage: "listen on `HOST:PORT`; port 0 is any that is free"},
			&cli.BoolFlag{Name: "allow-remote", Usage: "listen also on an address that other hosts can reach: everybody there can read"},
			&cli.BoolFlag{Name: "allow-unlock", Usage: "let everybody who can reach the page take names away, as unlock --force does"},
			&cli.DurationFlag{Name: "interval", Value: 2 * time.Second, Usage: "bring open pages up to date each `DURATION`; at least 100ms"},
			modeFlag("show the locks of `MODE`: unique, forupdate or advisory", unique),
		},
		Action: a.newAction(serveWeb),
	}
}

func serveWeb(ctx context.Context, o *action) error {
	hosts, err := o.checkWeb()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.cmd.String("listen"))
	if err != nil {
		return fail(exitSystem, "cannot listen on %s: %w", output.Word(o.cmd.String("listen")), listenReason(err))
	}
	defer func() { _ = listener.Close() }() // which Serve does, too
	if err := o.open(ctx); err != nil {
		return err
	}
	if o.db.inMemory {
		return fail(exitUnavailable, "nothing was ever locked here: %s does not exist", o.db.shown)
	}
	opts := &web.Options{
		Title: fmt.Sprintf("sqllock: %s mode", o.mode()), Interval: o.cmd.Duration("interval"), Hosts: hosts, Logger: o.sayLogger(),
	}
	if o.cmd.Bool("allow-unlock") {
		opts.AllowUnlock = func(*http.Request, string) error { return nil }
	}
	page, err := web.New(o.locks, opts)
	if err != nil {
		return err
	}
	if err := o.put([]byte(fmt.Sprintf("the page is at http://%s/\n", listener.Addr()))); err != nil {
		return err
	}
	return serve(ctx, listener, page)
}

// checkWeb checks the flags, and returns by which hosts the page may be addressed: nil is all.
func (o *action) checkWeb() (hosts []string, err error) {
	address := o.cmd.String("listen")
	host, _, err := net.SplitHostPort(address)
	switch ip := net.ParseIP(host); {
	case o.cmd.Args().Len() > 0:
		return nil, o.usageError("unexpected: %s", o.quoted(o.cmd.Args().First()))
	case err != nil:
		return nil, o.usageError("--listen %s: must be HOST:PORT", output.Word(address))
	case o.cmd.Duration("interval") < 100*time.Millisecond:
		return nil, o.usageError("--interval %v: must be at least 100ms", o.cmd.Duration("interval"))
	case host == "localhost" || ip != nil && ip.IsLoopback():
		return []string{"localhost", "127.0.0.1", "::1", host}, nil
	case !o.cmd.Bool("allow-remote"):
		return nil, o.usageError("--listen %s: other hosts may reach that address, and everybody there can read; if that is what you want, add --allow-remote", output.Word(address))
	case o.cmd.Bool("allow-unlock"):
		return nil, o.usageError("--allow-unlock is for a loopback address only: nobody is asked who they are")
	}
	return nil, nil
}

// listenReason leaves out the address, which is told already.
func listenReason(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	return err
}

// serve serves the page until the context ends, which is no failure.
func serve(ctx context.Context, listener net.Listener, page *web.Handler) error {
	server := &http.Server{
		Handler: page, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 1 << 16, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	err := error(nil)
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = page.Close(stopping) // ends the streams, for which Shutdown would wait
	if server.Shutdown(stopping) != nil {
		_ = server.Close()
	}
	if err != nil {
		return fail(exitSystem, "cannot serve: %w", err)
	}
	return nil
}

// sayLogger writes a line to stderr for each record.
func (a *app) sayLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(sayWriter{a}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Key == slog.TimeKey || attr.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return attr
	}}))
}

type sayWriter struct{ *app }

var _ io.Writer = sayWriter{}

func (w sayWriter) Write(line []byte) (int, error) {
	w.say("%s", line[:max(0, len(line)-1)])
	return len(line), nil
}

const webDescription = `web shows the locks of a database on a page in the browser: who holds which name, who waits
for it, in order, and since when, readers, permits, what was lost lately, and what happens to
a name while you look at it. The page updates itself, and can be read without JavaScript.

web reads only, unless you say --allow-unlock. It asks nobody who they are: it listens on
this host only, unless you say --allow-remote, and then refuses --allow-unlock. For a page with
accounts, put the package "web" into a server of yours.

SIGINT and SIGTERM end it.

Examples:

   sqllock web
   sqllock web --listen 127.0.0.1:0 --mode advisory
   SQLLOCK_DSN=postgres://app@db/app sqllock web --allow-unlock

Exit codes: 0 a signal ended it,
   64   wrong usage
   69   the database is unreachable or not usable
   71   it cannot listen on that address
   73   stdout cannot be written`
