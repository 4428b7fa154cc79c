package platform_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/internal/platform"
)

// shell runs a script until the test ends. The script ends with its input.
func shell(t *testing.T, script string) (pid int, out *bufio.Reader) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	return cmd.Process.Pid, bufio.NewReader(pipe)
}

func TestTheTimeOfAProcessContainsThatOfItsChildren(t *testing.T) {
	const someTime = 50 * time.Millisecond
	pid, _ := shell(t, `sh -c 'while kill -0 $PPID 2>/dev/null; do :; done' >/dev/null 2>&1 & read line`)
	for end := time.Now().Add(20 * time.Second); platform.ProcessTime(pid) < someTime; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a child that works has used %v", platform.ProcessTime(pid))
		}
	}
	pid, out := shell(t, `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo done; read line`)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if d := platform.ProcessTime(pid); d < someTime {
		t.Errorf("a child that has ended has used %v", d)
	}
}

func TestAProcessThatIsGoneHasUsedNothing(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=xxx")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if d := platform.ProcessTime(cmd.Process.Pid); d != 0 {
		t.Errorf("it is %v", d)
	}
}
