#!/usr/bin/env bash
# Runs all tests of all modules with the race detector, on every database that is
# required, and ends by naming the pairs of mode and database that were covered.
# It fails if a required database was not.
set -euo pipefail
cd "$(dirname "$0")/.."

export SQLLOCK_REQUIRE=${SQLLOCK_REQUIRE-postgres,mariadb}
scripts/setup.sh

SQLLOCK_COVER_FILE=$(mktemp)
export SQLLOCK_COVER_FILE
trap 'rm -f "$SQLLOCK_COVER_FILE"' EXIT

status=0
for module in $(scripts/modules.sh); do
  # -count=1: a result from the cache says nothing about today's servers, and
  # covers no pair.
  (cd "$module" && GOWORK=off CGO_ENABLED=1 go test -race -count=1 -timeout 40m ./...) || status=1
done

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
