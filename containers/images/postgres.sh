#!/bin/sh
# Entry point of the Postgres image that engine.sh makes: as the official image's as
# far as the tests go. Arguments are options of the server.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data

as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }

if [ ! -s "$data/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?is not set}"
  install -d -o postgres -g postgres -m 700 "$data"
  install -o postgres -m 600 /dev/null /tmp/password
  printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
  as_postgres "$bin/initdb" -D "$data" --username=postgres --pwfile=/tmp/password \
    --auth=scram-sha-256 --no-locale --encoding=UTF8 --no-sync
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
fi

cd /
exec setpriv --reuid=postgres --regid=postgres --clear-groups \
  "$bin/postgres" -D "$data" -c listen_addresses='*' -c unix_socket_directories= "$@"
