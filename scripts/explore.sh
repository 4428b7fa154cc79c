#!/usr/bin/env bash
# Proves the rules of a name at length: explores many more worlds than the tests do, plants all
# bugs into package claim, and compares each database with it step by step. It ends with an
# error if the exploration is smaller than 10^8 transitions.
#
# WEIGHT, MEMORY (in MB), WORLDS and STEPS change what it does. The comparison begins at SQLLOCK_DIFF_SEED.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh

go test -count=1 -timeout 12h -v -run TestNoInterleavingBreaksAName ./internal/claim \
  -args -explore.weight "${WEIGHT:-20}" -explore.memory "${MEMORY:-4000}" -explore.least 100000000
go test -count=1 -timeout 12h -v -run TheRulesHold ./internal/quorum -args -explore.worlds "${WORLDS:-20000000}"
go run ./internal/claim/planted
for database in lockpg lockmysql locksqlite; do
  SQLLOCK_REQUIRE=postgres,mariadb SQLLOCK_DIFF_STEPS=${STEPS:-100000} \
    go test -count=1 -timeout 12h -v -run '^TestGeneratedSteps' "./$database"
done
