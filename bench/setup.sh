#!/usr/bin/env bash
# Makes sure that the machine has the servers that the benchmarks compare. As root
# on Debian or Ubuntu it installs what is missing, after saying so, and starts
# nothing; SQLLOCK_INSTALL=0 forbids that. Elsewhere it says what is missing, and
# fails. The benchmarks run without any of them too, and say what they left out.
set -euo pipefail

# Servers are off the PATH of an ordinary user.
PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec

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

# The core packages have the programs and no service; older releases have none of
# these names.
mariadb_packages() {
  if ! has apt-cache || apt-cache show mariadb-server-core >/dev/null 2>&1; then
    echo mariadb-server-core mariadb-client-core
  else
    echo mariadb-server
  fi
}

say() { echo "bench: $*" >&2; }

may_install() {
  [[ ${SQLLOCK_INSTALL-1} != 0 && $(id -u) == 0 && -e /etc/debian_version ]] && has apt-get
}

apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# install_packages does so without starting a service or creating a database
# cluster: the benchmarks start servers of their own.
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

if ! has go; then
  say 'go was not found: install Go 1.25 or newer, https://go.dev/dl'
  exit 1
fi

lacking=$(missing)
[[ -n $lacking ]] || exit 0

if ! may_install; then
  say "missing: $(cut -f1 <<<"$lacking" | paste -sd , | sed 's/,/, /g')"
  say "on Debian or Ubuntu: sudo apt-get install --no-install-recommends $(cut -f2 <<<"$lacking" | xargs)"
  exit 1
fi

say "missing: $(cut -f1 <<<"$lacking" | paste -sd , | sed 's/,/, /g')"
apt update || say 'apt-get update failed; trying with the lists that are there'
packages=$(missing | cut -f2 | xargs) # anew: now the names of the packages are known
say "installing with apt-get: $packages (SQLLOCK_INSTALL=0 forbids it)"
# shellcheck disable=SC2086 # the names are words
install_packages $packages
lacking=$(missing)
if [[ -n $lacking ]]; then
  say "still missing after the installation: $(cut -f1 <<<"$lacking" | paste -sd ,)"
  exit 1
fi
