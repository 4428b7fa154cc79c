package testdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// errPortTaken is returned by boot when another process was quicker.
var errPortTaken = errors.New("the port is taken")

// instance is a server that was started here.
type instance struct {
	engine     engine
	supervisor *supervisor.Supervisor
	user       *supervisor.User
	dir        string
	progs      programs
	args       []string // in addition to the arguments that every server gets
	port       int
	pid        int
}

// launch starts a server on a free port. Its files are a copy of those that all servers of the
// engine begin with, or files of its own: then it has an identity of its own.
func launch(e engine, own bool, args []string) (*instance, error) {
	i, err := newInstance(e, args)
	if err != nil {
		return nil, err
	}
	if own {
		err = i.initialise()
	} else {
		err = i.copyTemplate()
	}
	if err == nil {
		err = i.bootAnywhere()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w\n%s", e.name(), err, i.logTail()), i.remove())
	}
	return i, nil
}

// newInstance makes the directory of a server.
func newInstance(e engine, args []string) (*instance, error) {
	progs, err := e.find()
	if err != nil {
		return nil, err
	}
	w, err := theSupervisor()
	if err != nil {
		return nil, err
	}
	i := &instance{engine: e, supervisor: w, user: supervisor.Account(e.account()), progs: progs, args: args}
	i.dir, err = w.MkdirMemory(i.user)
	return i, err
}

func (i *instance) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(i.port)) }

func (i *instance) dsn() string { return i.engine.local(i.addr()) }

func (i *instance) logFile() string { return filepath.Join(i.dir, "log") }

// output returns the output of the server and its helpers so far.
func (i *instance) output() string {
	text, _ := os.ReadFile(i.logFile())
	return string(text)
}

// logTail returns the end of the output.
func (i *instance) logTail() string {
	lines := strings.SplitAfter(i.output(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "")
}

func (i *instance) start(argv []string) (pid int, err error) {
	return i.supervisor.Start(supervisor.Command{Argv: argv, Dir: i.dir, Log: i.logFile(), User: i.user})
}

// initialise runs initdb or mariadb-install-db.
func (i *instance) initialise() error { return i.finish(i.engine.initialise(i.progs, i.dir)) }

// copyTemplate copies the files of the template: that is fifty times as quick.
func (i *instance) copyTemplate() error {
	dir, err := template(i.engine)
	if err != nil {
		return err
	}
	program, err := exec.LookPath("cp")
	if err != nil {
		return err
	}
	return i.finish([]string{program, "-Rp", filepath.Join(dir, "data"), filepath.Join(i.dir, "data")})
}

// finish runs a command to its end.
func (i *instance) finish(argv []string) error {
	pid, err := i.start(argv)
	if err != nil {
		return err
	}
	ended, status, err := i.supervisor.Wait(pid, stepTimeout)
	if err == nil && (!ended || status != "exit status 0") {
		err = fmt.Errorf("%s: %s", argv[0], status)
	}
	return err
}

// bootAnywhere boots on a free port. If another process takes the port first, it tries
// another port.
func (i *instance) bootAnywhere() error {
	var err error
	for range 5 {
		if i.port, err = supervisor.FreePort(); err != nil {
			return err
		}
		if err = i.boot(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// boot starts the server on its port and returns when it takes connections.
func (i *instance) boot() error {
	before := len(i.output())
	pid, err := i.start(append(i.engine.serve(i.progs, i.dir, i.port), i.args...))
	if err != nil {
		return err
	}
	i.pid = pid
	for deadline := time.Now().Add(stepTimeout); ; {
		ended, status, err := i.supervisor.Wait(pid, 20*time.Millisecond)
		switch {
		case err != nil:
			return err
		case ended && strings.Contains(i.output()[before:], "in use"):
			return errPortTaken
		case ended:
			return fmt.Errorf("the server ended: %s", status)
		}
		if err = i.probe(); err == nil {
			return nil
		}
		if errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return errors.Join(err, i.supervisor.Kill(pid))
		}
	}
}

// probe connects to the server and makes sure that it is this one, not one of
// another process on the same port.
func (i *instance) probe() error {
	db, err := i.engine.open(i.dsn())
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var dir string
	if err := db.QueryRowContext(ctx, i.engine.directory()).Scan(&dir); err != nil {
		return err
	}
	if filepath.Clean(dir) != filepath.Join(i.dir, "data") {
		return errPortTaken
	}
	return nil
}

// remove kills the server and removes its files.
func (i *instance) remove() error { return i.supervisor.Remove(i.dir) }
