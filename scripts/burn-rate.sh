#!/usr/bin/env bash
# Poison grows until the shipped alerts fire, in a real Prometheus that scrapes a processor: RedriveDeadLetterArrivals and
# the burn-rate alert RedriveDeadLettersGrowFast. The rules are those of deploy/alerts, with their own windows and waiting
# times; an alert is active from when its condition holds and fires when that has lasted for its waiting time. The share over an
# hour is that of the run so far, and the arrival rate over five minutes is too low until they have passed. Takes about seven
# minutes. Prints what Prometheus says; exits 1 if an alert does not fire.
#
# REDRIVE_BURN_QUICK=1 only shows that the rules are loaded and the series arrive, in some ten seconds.
source "$(dirname "${BASH_SOURCE[0]}")/prometheus/world.sh"

rate=50
alerts=(RedriveDeadLetterArrivals RedriveDeadLettersGrowFast)
quick=${REDRIVE_BURN_QUICK:-}
if [[ -n $quick ]]; then calm=2 patience=120 look=1; else calm=60 patience=600 look=15; fi

start_downstream
start_processor <<'TOML'
[[pipeline]]
name = "orders"
tiers = ["500ms", "1s"]
jitter = "none"
[pipeline.guard]
share = "100%"
[pipeline.sink.webhook]
url = "http://127.0.0.1:SINK/orders"
TOML
start_prometheus

echo "$($redrive --version), checkout $(git describe --always --dirty 2>/dev/null || echo unknown), $(prometheus --version 2>&1 | head -1 | cut -d' ' -f1-3); rules: deploy/alerts/redrive.rules.yaml, unchanged"
echo "orders at $rate/s; poison 1 % for $calm s (the objective allows 1 %), then 20 %"
printf '%6s %7s %12s %12s %8s' seconds poison "dead, 5 min" "dead, 1 h" open
printf ' %28s' "${alerts[@]}"
echo

began=$SECONDS
show() {
    local now=$((SECONDS - began)) line
    printf '%6s %7s %11.2f%% %11.2f%% %8.0f' "$now" "$1" \
        "$(jq -n "$(value 'redrive:dead_share:rate5m') * 100")" "$(jq -n "$(value 'redrive:dead_share:rate1h') * 100")" \
        "$(value 'redrive_dead_letters{state="open"}')"
    for alert in "${alerts[@]}"; do printf ' %28s' "$(state_of "$alert")"; done
    echo
}
# Rules that Prometheus could not evaluate, or has not yet.
unwell() {
    curl -sf "http://127.0.0.1:$prom/api/v1/rules" |
        jq -r '[.data.groups[].rules[] | select(.health != "ok") | .name] | unique | join(" ")'
}
is_done() {
    if [[ -n $quick ]]; then
        [[ -z $(unwell) && $(value 'redrive_dead_letters{state="open"}') != 0 && $(value 'redrive:dead_share:rate5m') != 0 ]]
    else
        all_fire
    fi
}
all_fire() {
    for alert in "${alerts[@]}"; do [[ $(state_of "$alert") == firing ]] || return 1; done
}

produce orders "$rate" "${calm}s" 1% 0
while ((SECONDS - began < calm)); do sleep "$look"; show "1 %"; done
produce orders "$rate" "${patience}s" 20% 1000000
while ((SECONDS - began < calm + patience)) && ! is_done; do sleep "$look"; show "20 %"; done

if [[ -n $quick ]]; then
    is_done || { echo "rules that cannot be evaluated: $(unwell)" >&2; exit 1; }
    echo "rules are evaluated and the series are there; the alerts need some minutes"
elif all_fire; then
    curl -sf "http://127.0.0.1:$prom/api/v1/alerts" |
        jq -r '.data.alerts[] | select(.state == "firing") | "firing, active since \(.activeAt[0:19])Z: \(.labels.alertname) (\(.labels.severity)): \(.annotations.summary). \(.annotations.description)"'
    cat <<TEXT
active since: from then on the condition held (pending); it fires when that has lasted for the rule's \`for\`
which alert at which share: RedriveDeadLetterArrivals asks for more than 10 letters a minute over 5 minutes, whatever the share:
$(jq -nr "10 / 60 / $rate * 10000 | round / 100") % of these $rate/s, 0.033 % of the 500/s of the scenario poison-growth. RedriveDeadLettersGrowFast asks for more than 14.4 % over
5 minutes and over 1 hour, so it fires at the 20 % of this run and not at 10 %, the most of poison-growth; there RedriveDeadLettersGrow
would (more than 6 % over 30 minutes and 6 hours, for 15 minutes), in a run that is long enough.
windows that are longer than the run are filled with what the run has: the share over 1 hour is that of the run so far
TEXT
else
    echo "not all alerts fire" >&2
    exit 1
fi
