//go:build unix

package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// server is the supervisor's side. Only the goroutine of serve uses it.
type server struct {
	dirs     []string
	children map[int]*child
}

// isSupported is false where servers cannot be started.
const isSupported = true

// serve answers requests until the test process is gone or a signal arrives. Then it
// cleans up and returns the exit code.
func serve() int {
	s := &server{children: make(map[int]*child)}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	// Without this, an answer to a test process that was just killed would end
	// the supervisor before it has cleaned up. Ignoring would be inherited.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	requests := make(chan request)
	go receive(requests)
	answers := json.NewEncoder(os.Stdout)
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return s.clean()
			}
			_ = answers.Encode(s.answer(r)) // fails if the reader is gone: end of file comes next
		case <-stop:
			return s.clean()
		}
	}
}

// receive sends the requests from the pipe to the channel, and closes the channel at the
// end.
func receive(requests chan<- request) {
	defer close(requests)
	for dec := json.NewDecoder(os.Stdin); ; {
		var r request
		if dec.Decode(&r) != nil {
			return
		}
		requests <- r
	}
}

// clean ends and removes everything.
func (s *server) clean() int {
	code := 0
	for _, dir := range slices.Clone(s.dirs) {
		if s.remove(dir) != nil {
			code = 1
		}
	}
	return code
}

func (s *server) answer(r request) reply {
	answer, err := s.do(r)
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

func (s *server) do(r request) (reply, error) {
	switch r.Op {
	case opMkdir:
		dir, err := s.mkdir(r.Command.User, r.Command.Dir)
		return reply{Dir: dir}, err
	case opStart:
		pid, err := s.start(r.Command)
		return reply{Pid: pid}, err
	case opRemove:
		return reply{}, s.remove(r.Command.Dir)
	}
	c := s.children[r.Pid]
	if c == nil {
		return reply{}, fmt.Errorf("process %d was not started here", r.Pid)
	}
	if r.Op == opPoll {
		return c.poll(), nil
	}
	return reply{}, c.do(r.Op)
}

func (s *server) mkdir(owner *User, parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "sqllock-test-")
	if err != nil {
		return "", err
	}
	s.dirs = append(s.dirs, dir)
	if owner == nil {
		return dir, nil
	}
	return dir, os.Chown(dir, int(owner.UID), int(owner.GID))
}

func (s *server) start(c Command) (int, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	// A locale, a PGDATA or a MYSQL_HOME of the developer's must not reach it.
	cmd := &exec.Cmd{
		Path: c.Argv[0], Args: c.Argv, Dir: c.Dir,
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + c.Dir, "TMPDIR=" + c.Dir,
		},
		Stdout: log, Stderr: log, SysProcAttr: ownGroup(c.User),
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	child := watch(cmd)
	s.children[child.pid] = child
	return child.pid, nil
}

// remove kills the processes of a directory and removes the directory.
func (s *server) remove(dir string) error {
	at := slices.Index(s.dirs, dir)
	if at < 0 {
		return fmt.Errorf("directory %q was not made here", dir)
	}
	var err error
	for pid, c := range s.children {
		if c.dir == dir {
			err = errors.Join(err, c.kill())
			delete(s.children, pid)
		}
	}
	if err != nil {
		return err
	}
	removeSharedMemory(dir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	s.dirs = slices.Delete(s.dirs, at, at+1)
	return nil
}

// removeSharedMemory frees the System V segment that a killed Postgres leaves behind. Its
// number is in the seventh line of postmaster.pid. The systems allow few segments, macOS
// 32.
func removeSharedMemory(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*", "postmaster.pid"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		lines := strings.Split(string(text), "\n")
		if len(lines) < 7 {
			continue
		}
		if key := strings.Fields(lines[6]); len(key) == 2 {
			_ = exec.Command("ipcrm", "-m", key[1]).Run() // gone already after a clean stop
		}
	}
}
