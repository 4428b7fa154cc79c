#!/usr/bin/env bash
# Runs a command in the directory of each module, without the workspace: users
# have none. EXCEPT names modules to leave out.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export GOWORK=off
for module in $("$root/scripts/modules.sh"); do
  [[ " ${EXCEPT-} " == *" ${module#./} "* ]] && continue
  (cd "$root/$module" && "$@")
done
