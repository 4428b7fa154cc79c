package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/output"
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
			b := readBuildInfo()
			if cmd.Bool("json") {
				return a.put(b.json())
			}
			return a.put(b.fields())
		},
	}
}

// buildInfo is what the toolchain has recorded in the program.
type buildInfo struct{ version, revision, goVersion, platform string }

func readBuildInfo() buildInfo {
	b := buildInfo{version: "unknown", goVersion: runtime.Version(), platform: runtime.GOOS + "/" + runtime.GOARCH}
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

// line is the output of --version.
func (b buildInfo) line() string {
	revision := ""
	if b.revision != "" {
		revision = " revision " + b.revision
	}
	return fmt.Sprintf("%s%s %s %s", b.version, revision, b.goVersion, b.platform)
}

func (b buildInfo) fields() []byte {
	f := output.NewFields()
	f.Add("version", b.version)
	if b.revision != "" {
		f.Add("revision", b.revision)
	}
	f.Add("go", b.goVersion)
	f.Add("platform", b.platform)
	f.Add("schema version", strconv.FormatInt(driver.SchemaVersion, 10))
	return f.Bytes()
}

func (b buildInfo) json() []byte {
	return output.JSON(struct {
		Version       string `json:"version,omitempty"`
		Revision      string `json:"revision,omitempty"`
		Go            string `json:"go,omitempty"`
		Platform      string `json:"platform,omitempty"`
		SchemaVersion int64  `json:"schema_version"`
	}{b.version, b.revision, b.goVersion, b.platform, driver.SchemaVersion})
}

const versionDescription = `version shows the version of the module, the revision of its source if the program was
built in a checkout, the version of Go, and the schema version: that of the tables which
this program needs, the newest of "sqllock migrate status". It asks no database.`
