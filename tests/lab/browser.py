#!/usr/bin/env python3
"""browser.py REPORT [SHOTS]: opens a report of the lab in headless Chromium, as wide as a phone and as a desktop.

Fails when the page logs an error, asks the network for anything, is wider than the screen, or has a chart without marks.
With SHOTS, a folder, it leaves a picture of each section there. Exits with 77 where there is no Chromium, or none that
starts.
It first opens a page with these faults, to see that they are found. Standard library only: Chromium is driven through
its debugging pipe.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
PATIENCE = 120  # seconds for an answer
WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--remote-debugging-pipe"]

# What each chart has drawn: shapes of an SVG that are neither axis nor grid, or pixels of a canvas that differ from its corner.
MARKS = """[...document.querySelectorAll('.chart')].map(chart => {
  const canvas = chart.querySelector('canvas');
  let marks = [...chart.querySelectorAll(':scope > svg path, :scope > svg circle, :scope > svg rect, :scope > svg line')]
    .filter(e => !e.closest('.axis, .grid') && !e.classList.contains('cursor') && e.getAttribute('d') !== '').length;
  if (canvas) {
    const p = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 4; i < p.length; i += 4) if (p[i] !== p[0] || p[i + 1] !== p[1] || p[i + 3] !== p[3]) ++marks;
  }
  return [chart.dataset.figure, marks];
})"""

FAULTY = """<!doctype html><meta name=viewport content="width=device-width"><div class=chart data-figure=empty><svg></svg></div>
<div style="width:3000px">wide</div><img src="http://127.0.0.1:9/x.png"><script>console.error('planted'); missing();</script>"""


class Browser:
    def __init__(self, program, folder):
        command_in, self.command = os.pipe()
        self.answer, answer_out = os.pipe()

        def pipes():  # Chromium reads commands from 3 and answers on 4
            os.dup2(command_in, 103)
            os.dup2(answer_out, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}"], preexec_fn=pipes, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_in)
        os.close(answer_out)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def receive(self):
        while b"\0" not in self.buffer:
            ready = select.select([self.answer], [], [], PATIENCE)[0]
            part = os.read(self.answer, 1 << 20) if ready else b""
            if not part:
                self.process.kill()
                if self.session is None:
                    print("skipped: Chromium does not start here")
                    sys.exit(SKIPPED)
                sys.exit("browser.py: Chromium went away")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        try:
            os.write(self.command, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            pass  # receive() tells
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"browser.py: {method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, text):
        result = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        return result["result"].get("value")

    def open(self, url, size):
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=size[0] < 600)
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive())
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def faults(self):
        """What is wrong with the page that is open."""
        found = []
        for event in self.events:
            method, p = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append("exception: " + p["exceptionDetails"]["text"])
            elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                found.append("console: " + str(p["args"][0].get("value")))
            elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                found.append("log: " + p["entry"]["text"])
            elif method == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("file:", "data:")):
                found.append("request: " + p["request"]["url"])
        wide = self.evaluate("document.documentElement.scrollWidth - innerWidth")
        if wide > 0:
            found.append(f"wide: {wide} pixels more than the screen")
        found += [f"empty: {figure}" for figure, marks in self.evaluate(MARKS) if not marks]
        return found

    def shoot(self, path, selector):
        box = self.evaluate(f"(e => [e.offsetLeft, e.offsetTop, e.offsetWidth, e.offsetHeight])(document.querySelector('{selector}'))")
        clip = {"x": box[0], "y": box[1], "width": box[2], "height": box[3], "scale": 1}
        picture = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self.call("Browser.close")
        self.process.wait()


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: browser.py REPORT [SHOTS]")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("skipped: there is no Chromium here")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(program, Path(folder) / "profile")
        faulty = Path(folder) / "faulty.html"
        faulty.write_text(FAULTY, encoding="utf-8")
        browser.open(faulty.as_uri(), WIDTHS["phone"])
        kinds = {fault.split(":")[0] for fault in browser.faults()}
        missed = {"exception", "console", "request", "wide", "empty"} - kinds
        if missed:
            sys.exit(f"browser.py: planted faults were not found: {', '.join(sorted(missed))}")

        page = Path(sys.argv[1]).resolve().as_uri()
        failed = False
        for name, size in WIDTHS.items():
            browser.open(page, size)
            charts = browser.evaluate("document.querySelectorAll('.chart').length")
            faults = browser.faults() + ([] if charts else ["there is no chart at all"])
            print(f"{name}: {charts} charts, {len(faults)} faults", *faults, sep="\n  ")
            failed = failed or bool(faults)
            if len(sys.argv) == 3:
                for section in browser.evaluate("[...document.querySelectorAll('section')].map(s => s.id)"):
                    browser.shoot(Path(sys.argv[2]) / f"{name}-{section}.png", f"#{section}")
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
