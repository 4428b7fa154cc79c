#!/usr/bin/env bash
# Prints the directories of the Go modules with code of this project. The module
# tools only pins programs.
set -euo pipefail
cd "$(dirname "$0")/.."
find . -name go.mod -not -path '*/testdata/*' -not -path './tools/*' -printf '%h\n' | sort
