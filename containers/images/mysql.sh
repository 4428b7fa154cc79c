#!/bin/sh
# Entry point of the MySQL and MariaDB images that engine.sh makes: as the official
# images' as far as the tests go. Arguments are options of the server.
set -eu
PATH=$PATH:/usr/sbin
data=/var/lib/mysql
server=$(command -v mariadbd || command -v mysqld)
options="--no-defaults --user=nobody --datadir=$data"

if [ ! -d "$data/mysql" ]; then
  password=${MARIADB_ROOT_PASSWORD:-${MYSQL_ROOT_PASSWORD:?is not set}}
  case $password in
  *[\'\\]*)
    echo 'a quote or a backslash in the password is too much for this image' >&2
    exit 1
    ;;
  esac
  install -d -o nobody "$data" /var/lib/mysql-files # which MySQL wants to be there
  # shellcheck disable=SC2086 # the options are words
  case $server in
  *mariadbd) mariadb-install-db $options --auth-root-authentication-method=normal --skip-test-db ;;
  *) "$server" $options --initialize-insecure ;;
  esac
  install -o nobody -m 600 /dev/null /tmp/init.sql
  cat >/tmp/init.sql <<SQL
CREATE USER 'root'@'%' IDENTIFIED BY '$password';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
ALTER USER 'root'@'localhost' IDENTIFIED BY '$password';
SQL
  set -- --init-file=/tmp/init.sql "$@"
fi

cd /
# shellcheck disable=SC2086
exec "$server" $options --loose-mysqlx=OFF --socket=/tmp/socket --pid-file=/tmp/pid "$@"
