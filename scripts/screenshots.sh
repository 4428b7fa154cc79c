#!/usr/bin/env bash
# Takes the pictures of docs/web.md: a page over an SQLite file with made-up locks, in a
# headless Chromium, light and dark. As root on Debian or Ubuntu it installs what is missing,
# after saying so; SQLLOCK_INSTALL=0 forbids that. It is no part of the tests: look at the
# pictures before you commit them.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=install.sh
source scripts/install.sh
who=screenshots
needs='the pictures'
missing() {
  command -v chromium >/dev/null || printf 'the browser chromium\tchromium\n'
  command -v sqlite3 >/dev/null || printf 'the client sqlite3\tsqlite3\n'
  command -v pngquant >/dev/null || printf 'pngquant, which makes pictures small\tpngquant\n'
}
install_missing

work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
go build -o "$work/sqllock" ./cmd/sqllock
export SQLLOCK_DSN=sqlite:$work/locks.db
"$work/sqllock" migrate up >/dev/null

# Names whose holders are made up: nobody renews them.
sqlite3 -cmd '.timeout 5000' "$work/locks.db" "
  WITH RECURSIVE n (i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 400),
    t (now) AS (SELECT 1000000 * unixepoch('now'))
  INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at)
    SELECT printf('invoice/2026-%05d', i), randomblob(16), randomblob(16), hex(randomblob(16)),
      'worker-' || (i % 7) || '/billing/' || (4000 + i), now - i * 7100000, 1, now - i * 2100000, now + i * 1300000 + 60000000 FROM n, t
    UNION ALL SELECT 'crashed/report', randomblob(16), randomblob(16), 'o', 'worker-2/reports/4122', now, 1, now, now + 9000000 FROM t;"

in_background() {
  "$work/sqllock" run "$@" >/dev/null 2>&1 &
  pids+=($!)
}
in_background --label db-1/cron/812 --value 10.0.0.7:8443 nightly -- sleep 100
for i in 1 2; do in_background --shared catalog -- sleep 100; done
for i in 1 2 3; do in_background --permits 4 "exports" -- sleep 100; done
sleep 1
for i in 1 2 3 4 5 6 7; do in_background --label "web-$i/shop/$((700 + i))" nightly -- sleep 100; done
for i in 1 2 3; do
  (while :; do "$work/sqllock" run --label "till-$i/shop" till -- sleep 0.4 >/dev/null 2>&1 || true; done) &
  pids+=($!)
done

"$work/sqllock" web --listen 127.0.0.1:0 --interval 1s >"$work/out" &
pids+=($!)
sleep 1
page=$(sed -n 's/^the page is at //p' "$work/out")

# What was seen before is on the first page.
for _ in $(seq 12); do
  curl -sf "$page" >/dev/null
  curl -sf "${page}name?n=till" >/dev/null
  sleep 1
done

picture() { # name, address, size, flags
  chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" "${@:4}" \
    --window-size="$3" --screenshot="$work/$1.png" "$page$2" >/dev/null 2>&1
  pngquant --force --output "docs/$1.png" 64 "$work/$1.png"
}
picture web-list '' 1180,820
picture web-list-dark '' 1180,820 --blink-settings=preferredColorScheme=0
picture web-name-dark 'name?n=till' 1180,820 --blink-settings=preferredColorScheme=0
picture web-narrow '' 500,900
ls -l docs/web-*.png
