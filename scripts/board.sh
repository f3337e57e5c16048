#!/usr/bin/env bash
# Experiment E1 on the board: one poison message in a blocking and in a non-blocking pipeline of one processor, watched by a
# real Prometheus. Every query of deploy/grafana/redrive.json goes through Prometheus' API, and `draw_board` draws the
# answers: a rendering of the board's queries, not a screenshot of Grafana. Takes five minutes.
#
# scripts/board.sh [OUT.svg]; REDRIVE_BOARD_SECONDS for another length.
out=$(realpath -m "${1:-docs/images/board-e1.svg}")
source "$(dirname "${BASH_SOURCE[0]}")/prometheus/world.sh"

seconds=${REDRIVE_BOARD_SECONDS:-300}
rate=20
draw=(cargo run --quiet --locked -p redrive-lab --all-features --example draw_board --)
[[ -z ${REDRIVE_DRAW_BOARD:-} ]] || draw=("$(realpath "$REDRIVE_DRAW_BOARD")")

start_downstream
pipelines() {
    for mode in blocking non-blocking; do
        cat <<TOML
[[pipeline]]
name = "$mode"
mode = "$mode"
concurrency = 1
tiers = ["5s", "30s", "5m"]
jitter = "none"
classify = "off"
outage_gate = false
[pipeline.breaker]
enabled = false
[pipeline.guard]
share = "100%"
[pipeline.sink.webhook]
url = "http://127.0.0.1:SINK/orders"
TOML
    done
}
# Not through a pipe: what is started in a subshell is not ended with the script.
start_processor < <(pipelines)
start_prometheus

began=$(date +%s)
for mode in blocking non-blocking; do produce "$mode" "$rate" "${seconds}s" 0% 0; done
sleep $((seconds / 5))
for mode in blocking non-blocking; do produce "$mode" 1 1s 100% 9000000; done
sleep $((seconds - seconds / 5))
ended=$(date +%s)

board=deploy/grafana/redrive.json
mkdir "$world/answers"
step=$(((ended - began) / 100 + 1))
jq -r '.panels | to_entries[] | .key as $p | .value.targets | to_entries[] | "\($p)-\(.key)\t\(.value.expr)"' "$board" |
    while IFS=$'\t' read -r name query; do
        curl -sfG "http://127.0.0.1:$prom/api/v1/query_range" --data-urlencode "query=${query//\$pipeline/.*}" \
            -d "start=$began" -d "end=$ended" -d "step=$step" >"$world/answers/$name.json" </dev/null
    done
"${draw[@]}" "$board" "$world/answers" "$out"
for mode in blocking non-blocking; do
    echo "$mode: lag $(value "sum(redrive_lag{pipeline=\"$mode\"})") after one poison message and $((seconds - seconds / 5)) s"
done
