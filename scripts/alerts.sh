#!/usr/bin/env bash
# The alert rules: their syntax, and their unit tests, which say for each alert when it fires and when it does not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../deploy/alerts"

if ! command -v promtool >/dev/null; then
    echo "alerts: promtool is missing; make tools installs it" >&2
    exit 1
fi
promtool check rules redrive.rules.yaml job_queue.rules.yaml
promtool test rules redrive.test.yaml redrive.slow.test.yaml job_queue.test.yaml
