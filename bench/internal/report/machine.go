package report

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/internal/platform"
)

// Machine describes the machine, on which all figures depend.
type Machine struct {
	Time       string            `json:"time"`
	CPU        string            `json:"cpu"`
	Cores      int               `json:"cores"`
	Kernel     string            `json:"kernel"`
	Filesystem string            `json:"filesystem"` // of the servers' files
	Go         string            `json:"go"`
	Rounds     int               `json:"rounds"`
	RoundMS    int64             `json:"round_ms"`
	Servers    map[string]string `json:"servers"`  // versions
	Settings   map[string]string `json:"settings"` // that decide on durability
	LeftOut    map[string]string `json:"left_out"` // servers that were not available, and why
}

// ThisMachine returns the facts of this machine; dir is where the servers keep
// their files.
func ThisMachine(dir string) Machine {
	return Machine{
		Time: time.Now().UTC().Format(time.RFC3339), CPU: cpuModel(), Cores: runtime.NumCPU(),
		Kernel: kernel(), Filesystem: platform.Filesystem(dir), Go: runtime.Version(),
		Servers: map[string]string{}, Settings: map[string]string{}, LeftOut: map[string]string{},
	}
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return runtime.GOARCH
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(text))
}
