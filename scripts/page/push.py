"""Runs the two scripts of docs/guide/push.md, page and service worker, against a page on loopback: clicks `subscribe`, and
hands the worker a push as Chromium would."""

import http.server, json, re, sys, textwrap, threading

from chromium import Chromium, fail

browser, profile, guide = sys.argv[1:]
# The public key of RFC 8292, section 2.4: any point on the curve does.
KEY = "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"

blocks = re.findall(r"```js\n(.*?)```", open(guide).read(), re.S)
scripts = {}
for block in blocks:
    text = textwrap.dedent(block)
    name = re.match(r"// (\w+\.js)\n", text)
    if name:
        scripts[name[1]] = text.replace("B…", KEY)
missing = {"page.js", "worker.js"} - scripts.keys()
if missing:
    fail(f"{guide} has no {', '.join(sorted(missing))}")

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

with Chromium(browser, profile) as page:
    def registrations():
        page.evaluate("1")
        found = [one for event in page.events if event.get("method") == "ServiceWorker.workerRegistrationUpdated"
                 for one in event["params"]["registrations"]]
        return found

    page.call("Browser.grantPermissions", permissions=["notifications"], origin=origin)
    page.open(origin + "/")
    page.call("Runtime.enable")
    page.call("ServiceWorker.enable")
    page.evaluate("""navigator.serviceWorker.addEventListener('message', (event) => { window.shown = event.data; });
                navigator.serviceWorker.startMessages();
                addEventListener('unhandledrejection', (event) => { window.rejected = String(event.reason); });
                document.querySelector('#subscribe').click()""")
    page.wait_for("the service worker", lambda: page.evaluate(
        "navigator.serviceWorker.getRegistration().then((found) => Boolean(found && found.active))"))
    print("page: the page has registered the service worker")
    rejected = page.wait_for("the subscription", lambda: posted and "none" or page.evaluate("window.rejected"))
    if posted:
        path, body = posted[0]
        keys = json.loads(body)["keys"]
        print(f"page: the browser has subscribed, and posted its keys ({', '.join(sorted(keys))}) to {path}")
    elif "push service" in rejected.lower():
        print(f"page: no push service could be reached, as expected here: {rejected}")
    else:
        fail(f"the subscription failed for another reason: {rejected}")
    registration = page.wait_for("the registration", registrations)[-1]["registrationId"]
    page.call("ServiceWorker.deliverPushMessage", origin=origin, registrationId=registration,
              data=json.dumps({"title": "Your order is on its way"}))
    shown = page.wait_for("the notification", lambda: page.evaluate("window.shown"))
    if shown != "Your order is on its way":
        fail(f"the worker showed {shown!r}")
    print("page: the worker showed the push")
    page.close()
