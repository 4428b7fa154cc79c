#!/usr/bin/env bash
# Prints the directories of the Go modules of this project.
set -euo pipefail
cd "$(dirname "$0")/.."
find . -name go.mod -not -path '*/testdata/*' -printf '%h\n' | sort
