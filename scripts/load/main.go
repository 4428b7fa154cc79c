//go:build unix

// Load takes a share of every processor for as long as a command runs, or for a while
// if none is given, and then ends: a machine that is shared with others, on purpose.
//
//	go run ./scripts/load -percent 40 -for 30m make test
//	go run ./scripts/load -percent 40 -for 1m
//
// On Linux, as root, the load goes before everything else: it takes its share evenly, as a neighbour
// on the same processors does. Elsewhere it competes, and catches up when it had to wait, which may
// take all of a processor for seconds. The share is counted in processor time. The load ends after
// the time of -for, and the command continues without it. Load returns the exit code of the
// command. At the end it prints its share of the processor time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	percent := flag.Int("percent", 40, "how much of each processor to take, 1 to 90")
	length := flag.Duration("for", 30*time.Minute, "how long at most, up to 2h")
	flag.Parse()
	if *percent < 1 || *percent > 90 || *length <= 0 || *length > 2*time.Hour {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	report := take(ctx, *percent)
	code := 0
	if flag.NArg() > 0 {
		code = run(flag.Args())
		cancel()
	}
	fmt.Fprintln(os.Stderr, <-report)
	os.Exit(code)
}

// take starts the load. When ctx ends, it stops the load and sends its processor time.
func take(ctx context.Context, percent int) (report <-chan string) {
	began, cores := time.Now(), runtime.NumCPU()
	share := time.Duration(percent * cores)
	for range cores {
		go func() {
			goFirst()
			for ctx.Err() == nil {
				if processorTime() < time.Since(began)*share/100 {
					burn(2 * time.Millisecond)
				} else {
					time.Sleep(5 * time.Millisecond)
				}
			}
		}()
	}
	done := make(chan string, 1)
	go func() {
		<-ctx.Done()
		lasted := time.Since(began)
		done <- fmt.Sprintf("load: took %d %% of %d processors for %v",
			100*processorTime()/(lasted*time.Duration(cores)), cores, lasted.Round(time.Second))
	}()
	return done
}

// goFirst lets the calling goroutine go before everything else, if it may.
func goFirst() {
	if runtime.GOOS != "linux" { // where the command would inherit the priority
		return
	}
	runtime.LockOSThread() // the priority is that of the thread, and ends with it
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, -20); err != nil && !errors.Is(err, os.ErrPermission) {
		panic("bug: setpriority: " + err.Error())
	}
}

// processorTime returns the processor time of this process, without its children.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("bug: getrusage: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func burn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// run returns the command's exit code. It gets the signals that the terminal sends to
// both.
func run(command []string) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		return 1
	}
	return max(cmd.ProcessState.ExitCode(), -1) & 0xff
}
