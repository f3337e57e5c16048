#!/usr/bin/env bash
# Runs the two scripts of docs/guide/push.md, page and service worker, in headless Chromium against a page on loopback:
# clicks `subscribe`, and hands the worker a push as Chromium would. A real push service cannot be reached here, so the
# subscription itself may fail, but only for that reason.
#
#   scripts/push-page.sh      needs Chromium; `scripts/page.sh install` installs it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

browser=
for name in chromium chromium-browser google-chrome chromium-headless-shell; do
    if command -v "$name" >/dev/null; then
        browser=$name
        break
    fi
done
[[ -n $browser ]] || { echo "push-page: no Chromium found; run scripts/page.sh install" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
python3 - "$browser" docs/guide/push.md "$work/profile" <<'PYTHON'
# Chromium's own protocol over a pair of pipes: a JSON object and a zero byte each way.
import http.server, json, os, re, select, subprocess, sys, textwrap, threading, time

browser, guide, profile = sys.argv[1:]
# The public key of RFC 8292, section 2.4: any point on the curve does.
KEY = "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"
SECONDS_MAX = 30

blocks = re.findall(r"```js\n(.*?)```", open(guide).read(), re.S)
scripts = {}
for block in blocks:
    text = textwrap.dedent(block)
    name = re.match(r"// (\w+\.js)\n", text)
    if name:
        scripts[name[1]] = text.replace("B…", KEY)
missing = {"page.js", "worker.js"} - scripts.keys()
if missing:
    sys.exit(f"push-page: {guide} has no {', '.join(sorted(missing))}")

# Headless Chromium has nowhere to show a notification, so the page is told of it instead.
scripts["worker.js"] = """
ServiceWorkerRegistration.prototype.showNotification = async (title) => {
  for (const page of await self.clients.matchAll({ includeUncontrolled: true })) page.postMessage(title);
};
""" + scripts["worker.js"]
PAGE = "<!doctype html><title>push</title><button id=subscribe>subscribe</button><script src=/page.js></script>"
posted = []


class Site(http.server.BaseHTTPRequestHandler):
    def answer(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = self.path.lstrip("/")
        self.answer("text/javascript" if name in scripts else "text/html", scripts.get(name, PAGE))

    def do_POST(self):
        posted.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.answer("text/plain", "")

    def log_message(self, *_):
        pass


site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=site.serve_forever, daemon=True).start()
origin = f"http://localhost:{site.server_address[1]}"

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
    [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-pipe",
     "about:blank"],
    close_fds=False, preexec_fn=give_pipes, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.close(theirs_in)
os.close(theirs_out)
number, session, events, rest = 0, None, [], b""


def read(until):
    """The next message, or None when it is too late."""
    global rest
    while b"\0" not in rest:
        if not select.select([ours_in], [], [], max(0, until - time.monotonic()))[0]:
            return None
        piece = os.read(ours_in, 65536)
        if not piece:
            sys.exit("push-page: Chromium has gone")
        rest += piece
    text, _, rest = rest.partition(b"\0")
    return json.loads(text)


def call(method, **params):
    global number
    number += 1
    request = {"id": number, "method": method, "params": params}
    if session:
        request["sessionId"] = session
    os.write(ours_out, json.dumps(request).encode() + b"\0")
    until = time.monotonic() + SECONDS_MAX
    while True:
        answer = read(until)
        if answer is None:
            sys.exit(f"push-page: no answer to {method}")
        if answer.get("id") == number:
            if "error" in answer:
                sys.exit(f"push-page: {method}: {answer['error']}")
            return answer["result"]
        events.append(answer)


def evaluate(expression):
    answer = call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
    if "exceptionDetails" in answer:
        sys.exit(f"push-page: {expression}: {answer['exceptionDetails']}")
    return answer["result"].get("value")


def wait_for(what, condition):
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"push-page: waited for {what}; events: {json.dumps(events)[:2000]}")


def registrations():
    evaluate("1")
    found = [one for event in events if event.get("method") == "ServiceWorker.workerRegistrationUpdated"
             for one in event["params"]["registrations"]]
    return found


try:
    call("Browser.grantPermissions", permissions=["notifications"], origin=origin)
    target = call("Target.createTarget", url=origin + "/")["targetId"]
    session = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    call("Runtime.enable")
    call("ServiceWorker.enable")
    wait_for("the page", lambda: evaluate("document.readyState") == "complete")
    evaluate("""navigator.serviceWorker.addEventListener('message', (event) => { window.shown = event.data; });
                navigator.serviceWorker.startMessages();
                addEventListener('unhandledrejection', (event) => { window.rejected = String(event.reason); });
                document.querySelector('#subscribe').click()""")
    wait_for("the service worker", lambda: evaluate(
        "navigator.serviceWorker.getRegistration().then((found) => Boolean(found && found.active))"))
    print("push-page: the page has registered the service worker")
    rejected = wait_for("the subscription", lambda: posted and "none" or evaluate("window.rejected"))
    if posted:
        path, body = posted[0]
        keys = json.loads(body)["keys"]
        print(f"push-page: the browser has subscribed, and posted its keys ({', '.join(sorted(keys))}) to {path}")
    elif "push service" in rejected.lower():
        print(f"push-page: no push service could be reached, as expected here: {rejected}")
    else:
        sys.exit(f"push-page: the subscription failed for another reason: {rejected}")
    registration = wait_for("the registration", registrations)[-1]["registrationId"]
    call("ServiceWorker.deliverPushMessage", origin=origin, registrationId=registration,
         data=json.dumps({"title": "Your order is on its way"}))
    shown = wait_for("the notification", lambda: evaluate("window.shown"))
    if shown != "Your order is on its way":
        sys.exit(f"push-page: the worker showed {shown!r}")
    print("push-page: the worker showed the push")
    session = None
    call("Browser.close")
finally:
    try:
        chromium.wait(timeout=10)
    except subprocess.TimeoutExpired:
        chromium.kill()
PYTHON
