#!/usr/bin/env bash
# Prints where the processor time of unique mode on Postgres goes in a workload, and what the
# sessions of the server wait for. The flags are those of the benchmark:
#
#   bench/profile.sh -workload distinct -callers 1024 -rounds 20
#
# It needs perf (Debian: linux-perf), psql, and to be root. It samples the clock of the whole
# machine, so let nothing else run.
set -euo pipefail
cd "$(dirname "$0")"

work=$(mktemp -d)
chmod 755 "$work" # the server is another user
trap 'rm -rf "$work"' EXIT
GOWORK=off go build -o "$work/sqllock-bench" .
"$work/sqllock-bench" -only '^sqllock/postgres/unique$' -dir "$work" -out "$work" "$@" >"$work/log" 2>&1 &
bench=$!

port() { pgrep -af "postgres -D $work" | sed -n 's/.* -p \([0-9]*\) .*/\1/p'; }
until grep -q 'round 1 ' "$work/log" && [[ -n $(port) ]]; do
  kill -0 "$bench" || { cat "$work/log" >&2 && exit 1; }
  sleep 0.1
done
echo "SELECT coalesce(wait_event_type || '/' || wait_event, 'computes') FROM pg_stat_activity
  WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid() \\watch 0.02" |
  psql -h 127.0.0.1 -p "$(port)" -U postgres -Atq >"$work/waits" 2>/dev/null &
waits=$!
perf record -q -a -e cpu-clock -F 500 -o "$work/perf" -- tail --pid="$bench" -f /dev/null 2>/dev/null || true
wait "$bench" || { cat "$work/log" >&2 && exit 1; }
wait "$waits" || true # it ends with the server

# top prints the ten symbols that took most of the time of a command, in per cent of the machine's.
top() {
  echo "$1: $(perf report -i "$work/perf" --comm "$2" --no-children --sort comm 2>/dev/null | awk '/%/ { sum += $1 } END { print sum + 0 }') % of the machine"
  perf report -i "$work/perf" --comm "$2" --no-children --sort sym 2>/dev/null |
    awk '/%/ && n++ < 10 { sub(/ +$/, ""); print }'
}
echo "bench/profile.sh $*"
grep -m 1 -A 1 '^ *callers' "$work/latest.txt"
top client sqllock-bench
top server postgres
echo 'sessions that are active'
grep -E '^(computes|[A-Za-z]+/[A-Za-z]+)$' "$work/waits" | sort | uniq -c | sort -rn |
  awk 'NR <= 10 { n[NR] = $1; what[NR] = $2 } { sum += $1 } END { for (i = 1; i <= NR && i <= 10; i++) printf "%9.2f%%  %s\n", 100 * n[i] / sum, what[i] }'
