#!/usr/bin/env bash
# Makes sure that the machine has what the tests need: the database servers named
# in SQLLOCK_REQUIRE and a C compiler, without which Go has no race detector. As
# root on Debian or Ubuntu it installs what is missing, after saying so;
# SQLLOCK_INSTALL=0 forbids that. Elsewhere it says what is missing, and fails.
set -euo pipefail

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
  if ! has_compiler; then
    printf 'a C compiler, for the race detector\tgcc libc6-dev\n'
  fi
  if ! has_certificates; then
    printf 'root certificates, to download Go modules\tca-certificates\n'
  fi
}

# The core packages have the programs and no service; older releases have none of
# these names.
mariadb_packages() {
  if ! command -v apt-cache >/dev/null || apt-cache show mariadb-server-core >/dev/null 2>&1; then
    echo mariadb-server-core mariadb-client-core
  else
    echo mariadb-server
  fi
}

say() { echo "sqllock: $*" >&2; }

may_install() {
  [[ ${SQLLOCK_INSTALL-1} != 0 && $(id -u) == 0 && -e /etc/debian_version ]] && command -v apt-get >/dev/null
}

apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# install_packages does so without starting a service or creating a database
# cluster: the tests start servers of their own.
install_packages() {
  trap 'rm -f "${ours[@]}"; rmdir --ignore-fail-on-non-empty "$clusters"' EXIT
  clusters=/etc/postgresql-common/createcluster.d
  ours=("$clusters/zz-sqllock.conf")
  mkdir -p "$clusters"
  echo 'create_main_cluster = false' >"${ours[0]}"
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    ours+=(/usr/sbin/policy-rc.d)
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
  fi
  apt install --no-install-recommends -y "$@" </dev/null >&2
}

if ! command -v go >/dev/null; then
  say 'go was not found: install Go 1.25 or newer, https://go.dev/dl'
  exit 1
fi

lacking=$(missing)
[[ -n $lacking ]] || exit 0

if ! may_install; then
  say 'the tests need:'
  cut -f1 <<<"$lacking" | sed 's/^/  - /' >&2
  say "on Debian or Ubuntu: sudo apt-get install --no-install-recommends $(cut -f2 <<<"$lacking" | xargs)"
  exit 1
fi

say "missing: $(cut -f1 <<<"$lacking" | paste -sd ';' | sed 's/;/; /g')"
apt update || say 'apt-get update failed; trying with the lists that are there'
packages=$(missing | cut -f2 | xargs) # anew: now the names of the packages are known
say "installing with apt-get: $packages (SQLLOCK_INSTALL=0 forbids it)"
# shellcheck disable=SC2086 # the names are words
install_packages $packages
lacking=$(missing)
if [[ -n $lacking ]]; then
  say "still missing after the installation: $(cut -f1 <<<"$lacking" | paste -sd ';')"
  exit 1
fi
