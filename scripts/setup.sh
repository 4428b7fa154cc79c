#!/usr/bin/env bash
# Makes sure that the machine has what the tests need: the database servers named
# in SQLLOCK_REQUIRE, z3 if that names anything, and a C compiler, without which Go has no
# race detector. As
# root on Debian or Ubuntu it installs what is missing, after saying so;
# SQLLOCK_INSTALL=0 forbids that. Elsewhere it says what is missing, and fails.
set -euo pipefail

# shellcheck source=install.sh
source "$(dirname "$0")/install.sh"

who=sqllock
needs='the tests'
required=${SQLLOCK_REQUIRE-postgres,mariadb}

requires() { [[ ",${required// /}," == *",$1,"* ]]; }

# An address makes a server unnecessary. (internal/testdb/find.go looks in a few
# more places, where apt-get puts nothing.)
has_postgres() {
  [[ -n ${SQLLOCK_TEST_POSTGRES_DSN-} ]] && return
  local bin
  for bin in "$(dirname "$(command -v postgres || true)")" "$(pg_config --bindir 2>/dev/null || true)" \
    /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
    [[ -x $bin/postgres && -x $bin/initdb ]] && return
  done
  return 1
}

has_mariadb() {
  [[ -n ${SQLLOCK_TEST_MARIADB_DSN-} ]] && return
  local PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec
  command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null &&
    command -v my_print_defaults >/dev/null # which mariadb-install-db calls
}

# For the tests of what refuses to work through a pooler.
has_pooler() {
  local PATH=$PATH:/usr/sbin
  command -v pgbouncer >/dev/null
}

# For the test that pastes the statements of the library into the clients of the databases.
has_any() {
  local program
  for program; do command -v "$program" >/dev/null && return; done
  return 1
}

# A compiler without the C library's headers, as a bare gcc package is, does not do.
has_compiler() {
  echo '#include <stdlib.h>' | "$(go env CC)" -E -x c - >/dev/null 2>&1
}

has_certificates() {
  [[ -n ${SSL_CERT_FILE-} || -s /etc/ssl/certs/ca-certificates.crt || ! -e /etc/debian_version ]]
}

# missing prints a line for each missing thing: what it is for, a tab, the packages.
missing() {
  if requires postgres && ! has_postgres; then
    printf 'the Postgres server (or set SQLLOCK_TEST_POSTGRES_DSN)\tpostgresql\n'
  fi
  if requires postgres && ! has_pooler; then
    printf 'the pooler pgbouncer\tpgbouncer\n'
  fi
  if requires mariadb && ! has_mariadb; then
    printf 'the MariaDB server (or set SQLLOCK_TEST_MARIADB_DSN)\t%s\n' "$(mariadb_packages)"
  fi
  if requires postgres && ! has_any psql; then
    printf 'the client psql\tpostgresql-client\n'
  fi
  if requires mariadb && ! has_any mariadb mysql; then
    printf 'the client mariadb\tmariadb-client\n'
  fi
  if ! has_any sqlite3; then
    printf 'the client sqlite3\tsqlite3\n'
  fi
  if [[ -n $required ]] && ! has_any z3; then
    printf 'z3, which proves the rules of a name\tz3\n'
  fi
  if ! has_compiler; then
    printf 'a C compiler, for the race detector\tgcc libc6-dev\n'
  fi
  if ! has_certificates; then
    printf 'root certificates, to download Go modules\tca-certificates\n'
  fi
}

install_missing
