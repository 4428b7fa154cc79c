package migrations

import (
	"archive/zip"
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock/driver"
)

//go:embed */*.sql
var embedded embed.FS

// sources has a directory for each dialect. Tests add to it.
var sources fs.FS = embedded

// file is one migration with the names of the tables as configured.
type file struct {
	name     string
	version  int64
	text     string
	up, down []string // its statements
}

// render reads the files of a dialect. In them every name of ours is quoted and
// has the default prefix, and nothing else does that; quote makes the names that
// stand there instead. The name of an index takes no schema: it must be
// written without quotes.
func render(dialect string, mark byte, quote func(name string) string) ([]file, error) {
	paths, err := fs.Glob(sources, dialect+"/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	files := make([]file, 0, len(paths))
	for _, path := range paths {
		text, err := fs.ReadFile(sources, path)
		if err != nil {
			return nil, err
		}
		f := file{name: strings.TrimPrefix(path, dialect+"/")}
		if f.version, err = goose.NumericComponent(f.name); err != nil {
			return nil, err
		}
		// The closing quote is in the text already.
		f.text = strings.ReplaceAll(string(text), string(mark)+driver.DefaultPrefix, strings.TrimSuffix(quote(""), string(mark)))
		if f.up, f.down, err = split(f.text); err != nil {
			return nil, fmt.Errorf("bug: %s: %w", path, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// pack makes a file system of the rendered files. An archive in memory is the
// shortest one that the standard library has.
func pack(files []file) (fs.FS, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, f := range files {
		entry, err := w.Create(f.name)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write([]byte(f.text)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(buf.Bytes()), int64(buf.Len()))
}

// split takes the statements out of a goose file as goose does, whose parser is
// not exported. A statement ends with the line that ends with a semicolon, or
// stands between StatementBegin and StatementEnd.
func split(text string) (up, down []string, err error) {
	var into *[]string
	var statement strings.Builder
	block := false
	end := func() {
		*into = append(*into, strings.TrimSpace(statement.String()))
		statement.Reset()
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		annotation, annotated := strings.CutPrefix(line, "-- +goose ")
		switch {
		case annotation == "Up" && annotated:
			into = &up
		case annotation == "Down" && annotated:
			into = &down
		case annotation == "StatementBegin" && annotated:
			block = true
		case annotation == "StatementEnd" && annotated:
			block = false
			end()
		case annotated:
			return nil, nil, fmt.Errorf("unexpected line %q", line)
		case statement.Len() == 0 && (line == "" || strings.HasPrefix(line, "--")):
		case into == nil:
			return nil, nil, fmt.Errorf("line %q stands before Up", line)
		default:
			statement.WriteString(line + "\n")
			if !block && strings.HasSuffix(line, ";") {
				end()
			}
		}
	}
	if statement.Len() > 0 {
		return nil, nil, fmt.Errorf("unfinished statement %q", statement.String())
	}
	return up, down, nil
}
