# For scripts that see to it that the machine has what something needs. They define
# missing, which prints a line for each missing thing: what it is, a tab, the packages;
# and say who, by what name to speak, and needs, what it is that needs them.

# The core packages have the programs and no service; older releases have none of
# these names.
mariadb_packages() {
  if ! command -v apt-cache >/dev/null || apt-cache show mariadb-server-core >/dev/null 2>&1; then
    echo mariadb-server-core mariadb-client-core
  else
    echo mariadb-server
  fi
}

say() { echo "$who: $*" >&2; }

may_install() {
  [[ ${SQLLOCK_INSTALL-1} != 0 && $(id -u) == 0 && -e /etc/debian_version ]] && command -v apt-get >/dev/null
}

apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# install_packages does so without starting a service or creating a database
# cluster: who needs servers starts its own.
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

# install_missing installs what is missing, after saying so, as root on Debian or Ubuntu
# unless SQLLOCK_INSTALL=0 forbids it. Elsewhere it says what is missing, and fails.
install_missing() {
  local lacking packages
  if ! command -v go >/dev/null; then
    say 'go was not found: install Go 1.25 or newer, https://go.dev/dl'
    return 1
  fi

  lacking=$(missing)
  [[ -n $lacking ]] || return 0

  if ! may_install; then
    say "$needs need:"
    cut -f1 <<<"$lacking" | sed 's/^/  - /' >&2
    say "on Debian or Ubuntu: sudo apt-get install --no-install-recommends $(cut -f2 <<<"$lacking" | xargs)"
    return 1
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
    return 1
  fi
}
