package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version tells what was built, from what the toolchain has stamped into it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v += " revision " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			v += " modified"
		}
	}
	return fmt.Sprintf("%s %s %s/%s", v, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
