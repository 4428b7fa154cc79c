package testdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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

// launch makes the files of a server and starts it on a free port.
func launch(e engine, args []string) (*instance, error) {
	progs, err := e.find()
	if err != nil {
		return nil, err
	}
	w, err := theSupervisor()
	if err != nil {
		return nil, err
	}
	i := &instance{engine: e, supervisor: w, user: supervisor.Account(e.account()), progs: progs, args: args}
	if i.dir, err = w.MkdirMemory(i.user); err != nil {
		return nil, err
	}
	if err = i.initialise(); err == nil {
		err = i.bootAnywhere()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w\n%s", e.name(), err, i.logTail()), i.remove())
	}
	return i, nil
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
func (i *instance) initialise() error {
	pid, err := i.start(i.engine.initialise(i.progs, i.dir))
	if err != nil {
		return err
	}
	ended, status, err := i.supervisor.Wait(pid, stepTimeout)
	if err == nil && (!ended || status != "exit status 0") {
		err = fmt.Errorf("%s: %s", i.progs.initialise, status)
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
