#!/usr/bin/env bash
# Runs a command with a Docker engine of its own, which has images of database
# servers that were made here, without a registry:
#
#   containers/engine.sh make test-containers
#
# For root on Debian. It installs docker.io and debootstrap with apt-get if they are
# missing, after saying so (SQLLOCK_INSTALL=0 forbids that), and keeps everything
# else in a temporary directory. In the end nothing is left but what was installed;
# only SIGKILL makes it leave the directory and a bridge, though no process.
# SQLLOCK_ENGINE_IMAGES are the images to make, postgres and mysql unless it says
# otherwise; mariadb is the third. MySQL comes from Debian unstable.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
images=${SQLLOCK_ENGINE_IMAGES-postgres mysql}

say() { echo "engine.sh: $*" >&2; }

die() {
  say "$*"
  exit 69
}

install_missing() {
  local packages=()
  command -v dockerd >/dev/null || packages+=(docker.io)
  command -v debootstrap >/dev/null || packages+=(debootstrap)
  command -v ip >/dev/null || packages+=(iproute2)
  [[ ${#packages[@]} != 0 ]] || return 0
  [[ ${SQLLOCK_INSTALL-1} != 0 ]] || die "missing: ${packages[*]}"
  apt update
  # Newer releases have the client apart.
  command -v docker >/dev/null || ! apt-cache show docker-cli >/dev/null 2>&1 || packages+=(docker-cli)
  say "installing with apt-get: ${packages[*]} (SQLLOCK_INSTALL=0 forbids it)"
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then # no engine but ours is to start
    policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
  fi
  apt install --no-install-recommends -y "${packages[@]}" </dev/null >&2
  [[ -z $policy ]] || rm "$policy"
  policy=''
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"; }

# clean_up removes all that is ours. With the first process of the engine's process
# namespace ends all that is in it, and with that its mounts.
clean_up() {
  trap '' INT TERM HUP
  set +e # as much as possible
  if [[ -n $engine ]]; then
    kill -KILL "$engine"
    wait "$engine"
  fi 2>/dev/null
  for _ in $(seq 100); do # until the last process is gone
    find /sys/fs/cgroup -depth -type d \( -path "*/$name" -o -path "*/$name/*" \) \
      -exec rmdir {} + 2>/dev/null && break
    sleep 0.1
  done
  ! ip link show "$name" >/dev/null 2>&1 || ip link del "$name"
  [[ -z $policy ]] || rm -f "$policy"
  [[ ${#made[@]} == 0 ]] || rmdir "${made[@]}"
  rm -rf --one-file-system "$work"
}

# make_bridge makes a bridge with a network that nothing else leads to.
make_bridge() {
  local n
  for n in $(seq 31 -1 16); do
    if [[ -z $(ip -4 route show to match "172.$n.250.1" | grep -v ^default) ]]; then
      ip link add "$name" type bridge
      ip addr add "172.$n.250.1/24" dev "$name"
      ip link set "$name" up
      return
    fi
  done
  die 'no free network was found for the containers'
}

# start_engine starts the engine in namespaces of its own for mounts and processes.
# It needs no rules in the firewall: a process listens on each published port.
start_engine() {
  local dir
  for dir in /etc/docker /run/containerd; do
    [[ -d $dir ]] || { mkdir "$dir" && made+=("$dir"); }
  done
  echo '{}' >"$work/daemon.json" # the system's settings are for the system's engine
  # shellcheck disable=SC2016 # expanded by the inner shell
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc sh -c '
    # Where it writes whatever it is told, and where another containerd may listen.
    for dir in /etc/docker /run/containerd /opt; do
      mount -t tmpfs none $dir
    done
    "$@" &
    wait' sh \
    dockerd --config-file "$work/daemon.json" --data-root "$work/data" --exec-root "$work/exec" \
    --pidfile "$work/pid" -H "$DOCKER_HOST" \
    --bridge "$name" --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \
    --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$name" >"$work/log" 2>&1 &
  engine=$!
  for _ in $(seq 300); do
    docker info >/dev/null 2>&1 && return
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 "$work/log" >&2
  die 'the Docker engine does not start'
}

# make_image makes the image sqllock/NAME from packages of a Debian release.
make_image() {
  local image=$1 suite=$2 entry=$3
  shift 3
  say "making the image sqllock/$image: $* from Debian $suite"
  if ! make_root "$suite" "$@" >"$work/root.log" 2>&1; then
    tail -n 20 "$work/root.log" >&2
    die "cannot make the image of $image"
  fi
  install "$here/images/$entry" "$work/root/usr/local/bin/entrypoint"
  tar -C "$work/root" -c . |
    docker import --change 'ENTRYPOINT ["/usr/local/bin/entrypoint"]' - "sqllock/$image" >/dev/null
  rm -rf --one-file-system "$work/root"
}

# make_root installs packages below a directory, without making a database cluster
# and without starting anything that stays.
make_root() {
  local root=$work/root clusters=$work/root/etc/postgresql-common/createcluster.d
  unshare --mount debootstrap --variant=minbase "$1" "$root" \
    ${SQLLOCK_DEBIAN_MIRROR:+"$SQLLOCK_DEBIAN_MIRROR"} || return
  shift
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  mkdir -p "$clusters"
  echo 'create_main_cluster = false' >"$clusters/none.conf"
  DEBIAN_FRONTEND=noninteractive unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" \
    chroot "$root" apt-get -qq install --no-install-recommends -y "$@" </dev/null || return
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
}

make_images() {
  local image
  export SQLLOCK_POSTGRES_IMAGE=none SQLLOCK_MYSQL_IMAGE=none SQLLOCK_MARIADB_IMAGE=none
  for image in $images; do
    case $image in
    postgres) make_image postgres stable postgres.sh postgresql ;;
    mysql) make_image mysql unstable mysql.sh mysql-server-core ;;
    mariadb) make_image mariadb stable mysql.sh mariadb-server-core mariadb-client-core ;;
    *) die "SQLLOCK_ENGINE_IMAGES: no image is named $image" ;;
    esac
    export "SQLLOCK_${image^^}_IMAGE=sqllock/$image"
  done
}

[[ $# != 0 ]] || die 'usage: engine.sh COMMAND [ARGUMENT...]'
[[ $(id -u) == 0 && -e /etc/debian_version ]] || die 'only root on Debian can use this'

name=sqllock$$ # of the bridge and of the control group
engine='' policy='' made=()
work=$(mktemp -d "${TMPDIR:-/tmp}/sqllock-engine.XXXXXX")
export DOCKER_HOST=unix://$work/sock
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

install_missing
make_bridge
start_engine
make_images

set -m # the command is a process group, which we can end
"$@" </dev/null &
command=$!
trap 'kill -TERM -- -$command' INT TERM HUP
while :; do
  wait "$command" && status=0 || status=$?
  kill -0 "$command" 2>/dev/null || break # otherwise it was a signal that ended the wait
done
exit "$status"
