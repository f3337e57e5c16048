# Sourced by scripts/burn-rate.sh and scripts/board.sh: a downstream, a processor and a real Prometheus that scrapes it, on
# free ports of loopback, in a directory of their own. Everything ends with the script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in prometheus curl jq python3; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: run make tools" >&2; exit 1; }
done
redrive=${REDRIVE_BIN:-target/release/redrive}
[[ -x $redrive ]] || { echo "$redrive is missing: run cargo build --release -p redrive-cli, or set REDRIVE_BIN" >&2; exit 1; }
redrive=$(realpath "$redrive")

world=$(mktemp -d)
started=()
finish() {
    ((${#started[@]} == 0)) || kill "${started[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$world"
}
trap finish EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Waits until a page answers, at most half a minute.
until_answers() {
    for _ in {1..150}; do
        ! curl -sf -o /dev/null "$1" || return 0
        sleep 0.2
    done
    echo "nothing answers at $1" >&2
    cat "$world"/*.log >&2
    exit 1
}

api=$(free_port) sink=$(free_port) prom=$(free_port)
export REDRIVE_TOKEN=only-for-this-run

# Arguments: those of `redrive downstream`.
start_downstream() {
    "$redrive" downstream --listen "127.0.0.1:$sink" "$@" >"$world/downstream.log" 2>&1 &
    started+=($!)
    until_answers "http://127.0.0.1:$sink/livez"
}

# The pipelines come on standard input; SINK stands for the port of the downstream.
start_processor() {
    {
        printf '[engine]\nkind = "embedded"\ndir = "%s/data"\n[server]\nlisten = "127.0.0.1:%s"\n' "$world" "$api"
        sed "s/SINK/$sink/"
    } >"$world/redrive.toml"
    (cd "$world" && exec "$redrive" processor) >"$world/processor.log" 2>&1 &
    started+=($!)
    until_answers "http://127.0.0.1:$api/readyz"
}

# Loads the shipped rules as they are. Only how often it scrapes and evaluates is set here.
start_prometheus() {
    cat >"$world/prometheus.yml" <<YAML
global: { scrape_interval: 2s, evaluation_interval: 2s }
rule_files: [$PWD/deploy/alerts/redrive.rules.yaml]
scrape_configs:
  - job_name: redrive
    authorization: { credentials: $REDRIVE_TOKEN }
    static_configs: [{ targets: ["127.0.0.1:$api"] }]
YAML
    prometheus --config.file="$world/prometheus.yml" --storage.tsdb.path="$world/tsdb" \
        --web.listen-address="127.0.0.1:$prom" --log.level=warn 2>"$world/prometheus.log" &
    started+=($!)
    until_answers "http://127.0.0.1:$prom/-/ready"
}

# produce PIPELINE RATE DURATION POISON FIRST: orders at a fixed rate, in the background.
produce() {
    "$redrive" producer --target "http://127.0.0.1:$api/v1/pipelines/$1/messages" --rate "$2" --duration "$3" \
        --poison-rate "$4" --first "$5" --listen 127.0.0.1:0 >"$world/producer-$1.log" 2>&1 &
    started+=($!)
}

# The value of a query now; 0 if there is none, or no number.
value() {
    curl -sfG "http://127.0.0.1:$prom/api/v1/query" --data-urlencode "query=$1" |
        jq -r '.data.result[0].value[1] // "0" | if . == "NaN" then "0" else . end'
}

# inactive, pending or firing.
state_of() {
    curl -sf "http://127.0.0.1:$prom/api/v1/alerts" |
        jq -r --arg name "$1" '[.data.alerts[] | select(.labels.alertname == $name) | .state] | first // "inactive"'
}
