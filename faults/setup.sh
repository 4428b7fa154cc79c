#!/usr/bin/env bash
# Makes sure that the machine has the servers that faults are done to, and what sets
# their clocks; with the argument peers also those of the locks that ours are compared
# with, with galera what makes MariaDB a cluster. As root on Debian or Ubuntu it installs what is missing, after saying so, and
# starts nothing; SQLLOCK_INSTALL=0 forbids that. Elsewhere it says what is missing, and
# fails.
set -euo pipefail

# Servers are off the PATH of an ordinary user.
PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec

# shellcheck source=../scripts/install.sh
source "$(dirname "$0")/../scripts/install.sh"

who=faults
needs='the fault runs'
also=${1-}

has() { command -v "$1" >/dev/null; }

has_postgres() {
  local bin
  for bin in "$(dirname "$(command -v postgres || true)")" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
    [[ -x $bin/postgres && -x $bin/initdb && -x $bin/pg_basebackup ]] && return
  done
  return 1
}

has_faketime() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; }

has_zookeeper() { has java && [[ -e /usr/share/java/zookeeper.jar ]]; }

# missing prints a line for each missing thing: what it is, a tab, the packages.
missing() {
  has_postgres || printf 'Postgres\tpostgresql\n'
  { has mariadbd && has mariadb-install-db; } || printf 'MariaDB\t%s\n' "$(mariadb_packages)"
  has pgbouncer || printf 'pgbouncer\tpgbouncer\n'
  has_faketime || printf 'libfaketime\tlibfaketime\n'
  if [[ $also == galera ]]; then
    # The scripts that bring data to a new node are not in the core packages.
    { [[ -e /usr/lib/galera/libgalera_smm.so ]] && has wsrep_sst_rsync && has rsync; } || printf 'Galera\tmariadb-server galera-4 rsync\n'
  fi
  if [[ $also == peers ]]; then
    has redis-server || printf 'Redis\tredis-server\n'
    has etcd || printf 'etcd\tetcd-server\n'
    # The package zookeeper would bring a desktop's Java with it.
    has_zookeeper || printf 'ZooKeeper\tlibzookeeper-java default-jre-headless\n'
  fi
}

install_missing
