package sqllock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestUsersLinkOnlyTheirOwnDatabase(t *testing.T) {
	const module = "github.com/sqllock/sqllock"
	others := []string{"github.com/jackc/", "github.com/go-sql-driver/", "modernc.org/", "github.com/pressly/", "github.com/urfave/", "github.com/gdamore/", "golang.org/x/term", "go.opentelemetry.io/", "testing"}
	allowed := map[string]string{
		module:                 "",
		module + "/driver":     "",
		module + "/lockpg":     "github.com/jackc/",
		module + "/lockmysql":  "github.com/go-sql-driver/",
		module + "/locksqlite": "",
		module + "/web":        "",
	}
	for pkg, own := range allowed {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", pkg, err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			for _, other := range others {
				if other != own && strings.HasPrefix(dep, other) {
					t.Errorf("%s links %s", pkg, dep)
				}
			}
		}
	}
}

func TestThePageNeedsWhatTheCoreNeedsAndTheStandardLibrary(t *testing.T) {
	core, web := notStandard(t, "."), notStandard(t, "./web")
	for dep := range web {
		if !core[dep] && !strings.HasPrefix(dep, "github.com/sqllock/sqllock/") {
			t.Errorf("web links %s", dep)
		}
	}
	if !web["github.com/sqllock/sqllock/web"] || len(web) <= len(core) {
		t.Errorf("only %v were looked at", web)
	}
}

// notStandard are the packages that one links, with itself, but for the standard library.
func notStandard(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := make(map[string]bool)
	for dep := range strings.Lines(string(out)) {
		all[strings.TrimSpace(dep)] = true
	}
	return all
}

// licences are those that may come with a user's build, each by sentences that it
// begins with, or that tell it from others.
var licences = map[string][]string{
	"MIT":        {"Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation"},
	"BSD":        {"Redistribution and use in source and binary forms, with or without modification, are permitted", "Redistributions in binary form must reproduce"},
	"ISC":        {"Permission to use, copy, modify, and", "distribute this software for any purpose with or without fee is hereby granted"},
	"Apache-2.0": {"Apache License", "Version 2.0, January 2004"},
	"MPL-2.0":    {"Mozilla Public License Version 2.0"},
}

// mozilla are modules that may be under the Mozilla Public License, which asks nothing
// of those who build them into something else as they are: there is no other driver.
var mozilla = map[string]bool{"github.com/go-sql-driver/mysql": true}

// pictures have a licence of their own, and are not built into anything.
const pictures = "LICENSE-LOGO"

var blanks = regexp.MustCompile(`[\s*#/>]+`)

// licenceOf names the licence that a text is, "" if it is none of those known.
func licenceOf(text string) string {
	text = blanks.ReplaceAllString(text, " ")
	for name, sentences := range licences {
		found := true
		for _, s := range sentences {
			found = found && strings.Contains(strings.ToLower(text), strings.ToLower(s))
		}
		if found {
			return name
		}
	}
	return ""
}

func TestWhatUsersBuildHasLicencesThatLetThem(t *testing.T) {
	packages := []string{"./lockpg", "./lockmysql", "./locksqlite", "./migrations", "./cmd/sqllock", "./locktest"}
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`
	out, err := exec.Command("go", append([]string{"list", "-deps", "-f", format}, packages...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := make(map[string]bool)
	for l := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(l), " ")
		if path == "" || seen[path] {
			continue
		}
		seen[path] = true
		var found []string
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := strings.ToUpper(filepath.Base(file))
			if !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") || name == pictures {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				continue // a directory
			}
			licence := licenceOf(string(text))
			if licence == "" || licence == "MPL-2.0" && !mozilla[path] {
				t.Errorf("%s: %s has the licence %q", path, filepath.Base(file), licence)
			}
			found = append(found, filepath.Base(file)+": "+licence)
		}
		if len(found) == 0 {
			t.Errorf("%s has no file with a licence", path)
		}
		t.Logf("%s %q", path, found)
	}
	if len(seen) < 5 {
		t.Errorf("only %d modules were looked at", len(seen))
	}
}
