#!/usr/bin/env bash
# Runs the tests, on every database that is required, and ends by naming the pairs of
# mode and database that were covered, and the twenty slowest tests.
#
#   scripts/test.sh        all tests of the root module but for cells that take turns, and those
#                          of a third of the other modules: the commit decides which, and the
#                          end of the run says it. The race detector watches what is
#                          concurrent: the engine, the drivers but for the generated
#                          steps, the integrations, and the conformance suite on one pair
#   scripts/test.sh quick  the engine, the drivers, and the conformance suite of unique
#                          mode in brief, on SQLite and Postgres, without the race
#                          detector: below a minute and a half
#   scripts/test.sh all    all tests of all modules with the race detector; Once completes
#                          1,000 keys while processes are killed
#
# It fails if a test fails or is skipped, or if a required database was not covered.
# Nothing that failed is run again.
#
# The race detector leaves out the C code of SQLite, translated to Go, whose memory it
# does not watch anyway: with it those tests take three times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
what=${1-}

case $what in
quick)
  export SQLLOCK_REQUIRE=postgres
  export SQLLOCK_TEST_MARIADB_DSN=none SQLLOCK_TEST_MYSQL_DSN=none
  ;;
'' | all) export SQLLOCK_REQUIRE=${SQLLOCK_REQUIRE-postgres,mariadb} ;;
*)
  echo "usage: scripts/test.sh [quick | all]" >&2
  exit 2
  ;;
esac
[ "$what" != all ] || export SQLLOCK_TEST_KEYS=${SQLLOCK_TEST_KEYS-1000}
scripts/setup.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SQLLOCK_COVER_FILE=$work/cover
touch "$SQLLOCK_COVER_FILE"
export GOWORK=off CGO_ENABLED=1
GOBIN=$work go install -modfile=tools/go.mod gotest.tools/gotestsum
test2json=$(go tool -n test2json)

# tests compiles the tests of packages of a module, with flags before the module and flags of the
# test binary behind it, and prints for each package the command, for a shell, that runs them.
#
# Everything is compiled before the first test runs: beside compilers, short leases run out.
tests() {
  local build=() flags=() module bin package dir
  while [[ $1 == -* ]]; do build+=("$1") && shift; done
  module=$1 && shift
  while [[ $1 == -* ]]; do flags+=("$1") && shift; done
  bin=$(mktemp -d "$work/bin.XXXXXX")
  cd "$root/$module"
  go test -c "${build[@]}" -o "$bin/" "$@" >&2
  go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "$@" | grep . |
    while read -r package dir; do
      printf 'cd %q && %q --format pkgname --jsonfile=%q --raw-command -- %q -t -p %q' \
        "$dir" "$work/gotestsum" "$(mktemp "$work/json.XXXXXX")" "$test2json" "$package"
      printf ' %q' "$bin/$(basename "$package").test" -test.v=test2json -test.paniconexit0 -test.timeout=30m "${flags[@]}"
      printf '\0'
    done
  cd "$root"
}

race=(-race -gcflags=modernc.org/sqlite/lib=-race=false)

# Of the conformance suite the race detector watches one pair, in its ordinary setting.
watched='TestConformance/^unique_on_postgres$'
unwatched='TestConformance/^(unique_on_(sqlite|mariadb|mysql)|quorum_on_.*|for_update_on_.*|advisory_on_.*|.*_with_.*)$'

# In the generated steps, while one caller counts 10,000 permits, and in a batch of 600 requests
# nothing runs at the same time: there is nothing to watch. The race detector would take minutes, and
# a transaction in which the client computes for a second is undone.
drivers=(./lockpg ./lockmysql ./locksqlite)
batch='^a_large_batch_has_its_order$'
single="GeneratedSteps|TenThousandPermits|TestQueueAndSharedTerms/$batch|TestQueueAndSharedTerms/^(mariadb|mysql)\$/$batch"
single+="|TestQueueAndSharedTerms(In|On).*/^(mariadb|mysql)\$/./$batch"

engine=(. ./driver ./lockpg ./lockmysql ./locksqlite
  ./internal/batch ./internal/clock ./internal/deadlock ./internal/leak ./internal/netproxy
  ./internal/peerserver ./internal/sqlconn)

# others prints the packages of the root module that are not of the engine.
others() { comm -13 <(go list "${engine[@]}" | sort) <(go list ./... | sort); }

nested=$(scripts/modules.sh | grep -vx .)

# Of cells that say much the same one runs, and the others rest: the commit decides which. Each
# line has a test, and its subtests that take turns.
cells='
TestConformance ^unique_on_postgres_with_SERIALIZABLE$ ^unique_on_postgres_with_the_simple_protocol$ ^(for_update_on_postgres_with_SERIALIZABLE|unique_on_(mariadb|mysql)_with_clientFoundRows)$ ^(advisory_on_postgres_with_SERIALIZABLE|unique_on_mariadb_with_READ_UNCOMMITTED)$ _on_(mariadb|mysql)_with_SERIALIZABLE$
TestQueueAndSharedTermsInEverySession/^(mariadb|mysql)$ ^READ_UNCOMMITTED$ ^READ_COMMITTED$ ^SERIALIZABLE$ ^many_settings$
TestFiftyRunsCountToFifty$ ^sqlite$ ^postgres$ ^(mariadb|mysql)$
TestFiftyRunsCountToFiftyInEachMode ^postgres_forupdate$ ^(mariadb|mysql)_advisory$ ^postgres_advisory$ ^(mariadb|mysql)_forupdate$
TestAHundredThousandNamesAreListedQuickly ^sqlite$ ^postgres$ ^(mariadb|mysql)$'
commit=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)))
ran=$(awk -v turn="$commit" 'NF { print $1 "/" $(turn % (NF - 1) + 2) }' <<<"$cells")
rested=$(awk -v turn="$commit" 'NF { for (i = 2; i <= NF; i++) if (i != turn % (NF - 1) + 2) print $1 "/" $i }' <<<"$cells" | paste -sd '|')

# The conformance suite is run in full on two pairs besides the watched one, and in brief on four.
pairs=('unique on sqlite,for update on mariadb' 'unique on mariadb,advisory on postgres' 'for update on postgres,advisory on mariadb')
third=$((commit % 3))
[ -n "$what" ] || export SQLLOCK_TEST_BRIEF=${pairs[(third + 1) % 3]},${pairs[(third + 2) % 3]}
theirs=$(grep -vx ./tools <<<"$nested" | awk -v turn="$third" 'NR % 3 == turn' | tr '\n' ' ')

# The longest first. Promises wait for TTLs, most of the time.
jobs() {
  case $what in
  quick)
    tests . -test.short -test.parallel=12 -test.run=TestConformance .
    tests . -test.short -test.parallel=12 -test.skip=TestConformance . ./driver ./lockpg ./locksqlite ./migrations
    ;;
  all) for module in . $nested; do tests "${race[@]}" "$module" ./...; done ;;
  *)
    tests "${race[@]}" . -test.skip="$unwatched|$single|$rested" "${engine[@]}"
    tests . -test.parallel=100 -test.run=TestConformance -test.skip="$watched|$rested" . # all pairs: the suite bounds itself
    # shellcheck disable=SC2046 # the names are words
    tests . -test.skip="$rested" $(others)
    tests . -test.run="$single" . "${drivers[@]}"
    for module in $theirs ./tools; do tests "${race[@]}" "$module" ./...; done
    ;;
  esac
}

jobs >"$work/jobs"

# Three packages at a time: most of the time the tests wait. With four, requests take so long
# that leases with short TTLs run out.
status=0
began=$SECONDS
xargs -0 -n 1 -P 3 bash -c <"$work/jobs" || status=1
took=$((SECONDS - began))

cat "$work"/json.* >"$work/all"
if grep '"Action":"skip"' "$work/all" | grep -o '"Package":.*"Test":"[^"]*"' >"$work/skipped"; then
  echo "sqllock: skipped, which is a failure in disguise:"
  cat "$work/skipped"
  status=1
fi

echo "sqllock: the twenty slowest tests:"
"$work/gotestsum" tool slowest --jsonfile="$work/all" --num 20 --threshold 1s

# The lines are written by internal/testdb: a verb, a mode, a database, a reason.
awk -F '\t' -v required="sqlite,$SQLLOCK_REQUIRE" -v what="$what" '
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
      if (what == "quick" && why[p] == "its tests did not run to the end") { # what failed is told above
        print "sqllock: NOT covered: " p " (make quick leaves it out)"
        continue
      }
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
if [ -z "$what" ]; then
  echo "sqllock: of the cells that take turns these ran: ${ran//$'\n'/ }; make all runs every one"
  echo "sqllock: in full, the conformance suite ran on unique on postgres,${pairs[third]}; make all runs it so on all"
  echo "sqllock: of the nested modules the tests of $theirs./tools ran; make all runs every one"
fi
echo "sqllock: the tests took $((took / 60)) min $((took % 60)) s"
exit $status
