#!/usr/bin/env bash
# Makes sure that the machine has Prometheus and promtool, for make telemetry. As root on
# Debian or Ubuntu it installs what is missing, after saying so, and starts nothing;
# SQLLOCK_INSTALL=0 forbids that. Elsewhere it says what is missing, and fails.
set -euo pipefail

# shellcheck source=../scripts/install.sh
source "$(dirname "$0")/../scripts/install.sh"

who=telemetry
needs='the queries of the dashboard and the alerts'

missing() {
  if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
    printf 'Prometheus\tprometheus\n'
  fi
}

install_missing
