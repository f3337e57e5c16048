#!/usr/bin/env bash
# Pictures of the page: plays `redrive demo` on a free port, opens the page in headless Chromium, waits until there is
# something to see, and writes docs/images/page-light.png and page-dark.png. May be repeated.
#
#   scripts/page.sh install   make sure Chromium is there (apt-get, as root; otherwise says what to do)
#   scripts/page.sh           that, and the pictures
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'page: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

find_browser() {
    local name
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$name" && return
    done
    return 1
}

install_browser() {
    if find_browser >/dev/null; then
        say "found $(find_browser)"
        return
    fi
    command -v apt-get >/dev/null || die "no Chromium found; install it"
    [[ $(id -u) == 0 ]] || die "no Chromium found; run as root: apt-get install chromium-headless-shell"
    say "installing with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null
    # The small one first; releases before Debian 12 have only the whole browser.
    apt-get install -y -qq --no-install-recommends chromium-headless-shell >&2 </dev/null \
        || apt-get install -y -qq --no-install-recommends chromium >&2 </dev/null
    find_browser >/dev/null || die "apt-get succeeded, but there is no Chromium"
}

case ${1:-} in
install)
    install_browser
    exit
    ;;
'') install_browser ;;
*)
    sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

cargo build --quiet --locked -p redrive-cli
work=$(mktemp -d)
demo=
cleanup() {
    if [[ -n $demo ]]; then
        kill -INT "$demo" 2>/dev/null || true
        wait "$demo" 2>/dev/null || true
    fi
    rm -rf -- "$work"
}
trap cleanup EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# A job of a script ignores SIGINT unless job control is on; the demo is ended by it.
set -m
TMPDIR=$work "${CARGO_TARGET_DIR:-target}/debug/redrive" demo --listen "127.0.0.1:$port" \
    --outage-window 3s@14s >"$work/demo.log" 2>&1 </dev/null &
demo=$!
set +m
for _ in $(seq 100); do
    grep -q dashboard "$work/demo.log" && break
    kill -0 "$demo" 2>/dev/null || die "the demo ended: $(cat "$work/demo.log")"
    sleep 0.1
done

mkdir -p docs/images
python3 - "$(find_browser)" "http://127.0.0.1:$port/" "$work/profile" docs/images <<'PYTHON'
# Chromium's own protocol over a pair of pipes: a JSON object and a zero byte each way.
import base64, json, os, subprocess, sys, time

browser, url, profile, images = sys.argv[1:]
WIDTH, HEIGHT, SECONDS_MAX = 1200, 800, 60

ours_in, theirs_out = os.pipe()
theirs_in, ours_out = os.pipe()


def give_pipes():
    # Copied out of the way first: any of the four may be 3 or 4 itself.
    reading, writing = os.dup(theirs_in), os.dup(theirs_out)
    os.dup2(reading, 3)
    os.dup2(writing, 4)
    for fd in (3, 4):
        os.set_inheritable(fd, True)


chromium = subprocess.Popen(
    [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
     "--remote-debugging-pipe", "about:blank"],
    close_fds=False, preexec_fn=give_pipes, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.close(theirs_in)
os.close(theirs_out)
answers = os.fdopen(ours_in, "rb")
number, session = 0, None


def call(method, **params):
    global number
    number += 1
    request = {"id": number, "method": method, "params": params}
    if session:
        request["sessionId"] = session
    os.write(ours_out, json.dumps(request).encode() + b"\0")
    while True:
        text = b""
        while not text.endswith(b"\0"):
            byte = answers.read(1)
            if not byte:
                sys.exit("page: Chromium has gone")
            text += byte
        answer = json.loads(text[:-1])
        if answer.get("id") == number:
            if "error" in answer:
                sys.exit(f"page: {method}: {answer['error']}")
            return answer["result"]


def number_of(word):
    find = f"""Number([...document.querySelectorAll('.number')].find(cell => cell.lastChild.textContent === '{word}')
               ?.firstChild.textContent.replaceAll(',', '') ?? 0)"""
    return call("Runtime.evaluate", expression=find, returnByValue=True)["result"]["value"]


try:
    target = call("Target.createTarget", url=url)["targetId"]
    session = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    began = time.monotonic()
    # Long enough for the line of the last deliveries to have a shape, with the outage in it.
    while time.monotonic() - began < 30 or not (number_of("dead") and number_of("retrying")):
        if time.monotonic() - began > SECONDS_MAX:
            sys.exit("page: nothing to see: no dead letters, or nothing is being retried")
        time.sleep(0.5)
    for scheme in ("light", "dark"):
        call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        time.sleep(0.5)
        picture = base64.b64decode(call("Page.captureScreenshot", format="png")["data"])
        path = os.path.join(images, f"page-{scheme}.png")
        with open(path, "wb") as file:
            file.write(picture)
        print(f"page: {path}, {len(picture) // 1000} kB")
    session = None
    call("Browser.close")
finally:
    try:
        chromium.wait(timeout=10)
    except subprocess.TimeoutExpired:
        chromium.kill()
PYTHON
