"""Pictures of the dashboard, light and dark, once there is something to see."""

import base64, os, sys, time

from chromium import SECONDS_MAX, Chromium, fail

browser, profile, url, images = sys.argv[1:]
WIDTH, HEIGHT = 1200, 800

with Chromium(browser, profile) as page:
    def number_of(word):
        return page.evaluate(
            f"""Number([...document.querySelectorAll('.number')].find(cell => cell.lastChild.textContent === '{word}')
                ?.firstChild.textContent.replaceAll(',', '') ?? 0)""")

    page.open(url)
    page.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    began = time.monotonic()
    # Long enough for the line of the last deliveries to have a shape, with the outage in it.
    while time.monotonic() - began < 30 or not (number_of("dead") and number_of("retrying")):
        if time.monotonic() - began > SECONDS_MAX:
            fail("nothing to see: no dead letters, or nothing is being retried")
        time.sleep(0.5)
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        time.sleep(0.5)
        picture = base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"])
        path = os.path.join(images, f"page-{scheme}.png")
        with open(path, "wb") as file:
            file.write(picture)
        print(f"page: {path}, {len(picture) // 1000} kB")
    page.close()
