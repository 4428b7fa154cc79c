package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/driver"
)

func (a *app) versionCommand() *cli.Command {
	return &cli.Command{
		Name:            "version",
		Usage:           "show which program this is, and which tables it needs",
		Description:     versionDescription,
		HideHelpCommand: true,
		Flags:           []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "write a JSON object"}},
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fail(exitUsage, "version takes no argument")
			}
			b := readStamp()
			if cmd.Bool("json") {
				return a.put(b.json())
			}
			return a.put(b.text())
		},
	}
}

// stamp is what the toolchain has stamped into the program.
type stamp struct{ version, revision, goVersion, platform string }

func readStamp() stamp {
	b := stamp{version: "unknown", goVersion: runtime.Version(), platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.version = info.Main.Version; b.version == "" {
		b.version = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.revision = s.Value + b.revision
		case s.Key == "vcs.modified" && s.Value == "true":
			b.revision += " modified"
		}
	}
	return b
}

// line is what --version shows.
func (b stamp) line() string {
	revision := ""
	if b.revision != "" {
		revision = " revision " + b.revision
	}
	return fmt.Sprintf("%s%s %s %s", b.version, revision, b.goVersion, b.platform)
}

func (b stamp) text() []byte {
	f := newFields()
	f.field("version", b.version)
	if b.revision != "" {
		f.field("revision", b.revision)
	}
	f.field("go", b.goVersion)
	f.field("platform", b.platform)
	f.field("schema version", strconv.FormatInt(driver.SchemaVersion, 10))
	return f.bytes()
}

func (b stamp) json() []byte {
	var o object
	o.text("version", b.version)
	o.text("revision", b.revision)
	o.text("go", b.goVersion)
	o.text("platform", b.platform)
	o.number("schema_version", driver.SchemaVersion)
	return o.line()
}

const versionDescription = `version shows the version of the module, the revision of its source if the program was
built in a checkout, the version of Go, and the schema version: that of the tables which
this program needs, the newest of "sqllock migrate status". It asks no database.`
