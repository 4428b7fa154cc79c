package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
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
	f.Add("postgres schema version", strconv.FormatInt(schemas.Postgres, 10))
	f.Add("mysql schema version", strconv.FormatInt(schemas.MySQL, 10))
	f.Add("sqlite schema version", strconv.FormatInt(schemas.SQLite, 10))
	return f.Bytes()
}

func (b buildInfo) json() []byte {
	return output.JSON(struct {
		Version  string         `json:"version,omitempty"`
		Revision string         `json:"revision,omitempty"`
		Go       string         `json:"go,omitempty"`
		Platform string         `json:"platform,omitempty"`
		Schemas  schemaVersions `json:"schema_versions"`
	}{b.version, b.revision, b.goVersion, b.platform, schemas})
}

// schemaVersions are the versions of the tables, which each kind of database has of its own.
type schemaVersions struct {
	Postgres int64 `json:"postgres"`
	MySQL    int64 `json:"mysql"`
	SQLite   int64 `json:"sqlite"`
}

var schemas = schemaVersions{lockpg.SchemaVersion, lockmysql.SchemaVersion, locksqlite.SchemaVersion}

const versionDescription = `version shows the version of the module, the revision of its source if the program was
built in a checkout, the version of Go, and the schema versions: those of the tables that
this program needs on each kind of database, the newest of "sqllock migrate status". It
asks no database.`
