#!/usr/bin/env bash
# Makes sure that the machine has the servers that the benchmarks compare. As root
# on Debian or Ubuntu it installs what is missing, after saying so, and starts
# nothing; SQLLOCK_INSTALL=0 forbids that. Elsewhere it says what is missing, and
# fails. The benchmarks run without any of them too, and say what they left out.
set -euo pipefail

# Servers are off the PATH of an ordinary user.
PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec

# shellcheck source=../scripts/install.sh
source "$(dirname "$0")/../scripts/install.sh"

who=bench
needs='the benchmarks'

has() { command -v "$1" >/dev/null; }

has_postgres() {
  local bin
  for bin in "$(dirname "$(command -v postgres || true)")" "$(pg_config --bindir 2>/dev/null || true)" \
    /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
    [[ -x $bin/postgres && -x $bin/initdb ]] && return
  done
  return 1
}

has_zookeeper() { has java && [[ -e /usr/share/java/zookeeper.jar ]]; }

# missing prints a line for each missing server: what it is, a tab, the packages.
missing() {
  has_postgres || printf 'Postgres\tpostgresql\n'
  { has mariadbd && has mariadb-install-db; } || printf 'MariaDB\t%s\n' "$(mariadb_packages)"
  has redis-server || printf 'Redis\tredis-server\n'
  has etcd || printf 'etcd\tetcd-server\n'
  # The package zookeeper would bring a desktop's Java with it.
  has_zookeeper || printf 'ZooKeeper\tlibzookeeper-java default-jre-headless\n'
}

install_missing
