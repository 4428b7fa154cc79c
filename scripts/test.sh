#!/usr/bin/env bash
# Runs all tests of all modules with the race detector, on every database that is
# required, and ends by naming the pairs of mode and database that were covered.
# It fails if a required database was not.
#
# Leases live from being renewed in time. On a virtual machine whose processors are
# given to others for seconds they are lost, which says nothing of the locks. The kernel
# counts that time, as steal. Where it was a hundredth or more, a test that failed may
# pass when it is run again, alone and at most twice, and is named at the end; not so if
# there was a data race or a panic, or if more than sixty failed in a module. Elsewhere
# every failure is final.
#
# The race detector leaves out the C code of SQLite, translated to Go, whose memory it
# does not watch anyway: with it those tests take three times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

export SQLLOCK_REQUIRE=${SQLLOCK_REQUIRE-postgres,mariadb}
scripts/setup.sh

SQLLOCK_COVER_FILE=$(mktemp)
export SQLLOCK_COVER_FILE
work=$(mktemp -d)
trap 'rm -rf "$SQLLOCK_COVER_FILE" "$work"' EXIT

# ticks prints how long the processors have been there, and how much of it others had.
ticks() {
  if [ -r /proc/stat ]; then
    awk '$1 == "cpu" { for (i = 2; i <= 9; i++) all += $i; print all, $9 }' /proc/stat
  else
    echo 0 0
  fi
}
read -r before stolen_before < <(ticks)

status=0
for module in $(scripts/modules.sh); do
  # -count=1: a result from the cache says nothing about today's servers, and
  # covers no pair.
  (
    cd "$module"
    export GOWORK=off CGO_ENABLED=1
    go tool -modfile="$root/tools/go.mod" gotestsum --format pkgname --format-hide-empty-pkg \
      --rerun-fails=2 --rerun-fails-max-failures=60 --rerun-fails-abort-on-data-race \
      --rerun-fails-report="$work/module" --jsonfile="$work/json" --packages=./... -- \
      -race -gcflags=modernc.org/sqlite/lib=-race=false -count=1 -timeout 40m
  ) || status=1
  [ ! -e "$work/module" ] || cat "$work/module" >>"$work/again"
  # What fails although none of its tests does, as with a leak, is run again as a whole,
  # and stays a failure.
  awk '/"Action":"fail"/ {
      match($0, /"Package":"[^"]*"/); pkg = substr($0, RSTART, RLENGTH)
      if (/"Test":"/) tests[pkg] = 1; else failed[pkg] = 1
    }
    END { for (pkg in failed) if (!(pkg in tests)) { print "sqllock: failed without a failed test: " pkg; bad = 1 }; exit bad }
  ' "$work/json" || status=1
  rm -f "$work/module" "$work/json"
done

if [ -s "$work/again" ]; then
  read -r now stolen_now < <(ticks)
  stolen=$((now > before ? 100 * (stolen_now - stolen_before) / (now - before) : 0))
  echo "sqllock: others had $stolen % of the processors' time; these tests failed, and were run again alone:"
  cat "$work/again"
  [ "$stolen" -ge 1 ] || status=1
fi

# The lines are written by internal/testdb: a verb, a mode, a database, a reason.
awk -F '\t' -v required="sqlite,$SQLLOCK_REQUIRE" '
  function pair() { return $2 "×" $3 }
  $1 == "covered" && !(pair() in covered) { covered[pair()] = 1; on[$3] = 1; all = all " " pair() }
  $1 == "uncovered" && !(pair() in why) { why[pair()] = $4; database[pair()] = $3; order[++n] = pair() }
  $1 == "absent" { absent[$3] = $4 }
  END {
    print "sqllock: covered:" (all == "" ? " nothing" : all)
    count = split(required, names, / *, */)
    for (i = 1; i <= count; i++) needed[names[i]] = 1
    for (i = 1; i <= n; i++) {
      p = order[i]
      if (p in covered) continue
      named[database[p]] = 1
      print "sqllock: NOT covered: " p " (" why[p] ")"
      if (database[p] in needed && why[p] !~ /^no server of its own/) bad = 1
    }
    for (d in absent) if (!(d in named)) print "sqllock: NOT covered: tests on " d " (" absent[d] ")"
    for (d in needed) if (d != "" && !(d in on)) {
      print "sqllock: nothing was covered on " d ", which is required"
      bad = 1
    }
    exit bad
  }' "$SQLLOCK_COVER_FILE" || status=1
exit $status
