"""Drives headless Chromium for scripts/page.sh, by its own protocol over a pair of pipes: a JSON object and a zero byte
each way."""

import json, os, select, subprocess, sys, time

SECONDS_MAX = 60


def fail(problem):
    sys.exit(f"page: {problem}")


class Chromium:
    def __init__(self, browser, profile):
        self.input, theirs_out = os.pipe()
        theirs_in, self.output = os.pipe()

        def give_pipes():
            # Copied out of the way first: any of the four may be 3 or 4 itself.
            reading, writing = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(reading, 3)
            os.dup2(writing, 4)
            for fd in (3, 4):
                os.set_inheritable(fd, True)

        self.process = subprocess.Popen(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
             "--remote-debugging-pipe", "about:blank"],
            close_fds=False, preexec_fn=give_pipes, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.session, self.events, self.rest = 0, None, [], b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def read(self, until):
        """The next message, or None when it is too late."""
        while b"\0" not in self.rest:
            if not select.select([self.input], [], [], max(0, until - time.monotonic()))[0]:
                return None
            piece = os.read(self.input, 65536)
            if not piece:
                fail("Chromium has gone")
            self.rest += piece
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.output, json.dumps(request).encode() + b"\0")
        until = time.monotonic() + SECONDS_MAX
        while True:
            answer = self.read(until)
            if answer is None:
                fail(f"no answer to {method}")
            if answer.get("id") == self.number:
                if "error" in answer:
                    fail(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        target = self.call("Target.createTarget", url=url)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        # An empty page is complete too.
        loaded = "location.protocol === 'http:' && document.readyState === 'complete'"
        self.wait_for(url, lambda: self.evaluate(loaded))

    def close(self):
        self.session = None
        self.call("Browser.close")

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in answer:
            fail(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, what, condition):
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until:
            found = condition()
            if found:
                return found
            time.sleep(0.1)
        fail(f"waited for {what}; events: {json.dumps(self.events)[:2000]}")
