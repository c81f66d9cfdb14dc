"""Headless Chromium, driven through its debugging pipe. Standard library only."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys

SKIPPED = 77
PATIENCE = 120  # seconds for an answer
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--remote-debugging-pipe"]


def program():
    """The browser; the process ends as skipped where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    print("skipped: there is no Chromium here")
    sys.exit(SKIPPED)


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
                sys.exit("chromium.py: Chromium went away")
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
                    sys.exit(f"chromium.py: {method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, text):
        result = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            sys.exit(f"chromium.py: {text[:80]}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def open(self, url, size, scheme="light"):
        self.events = []
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=size[0] < 600)
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive())
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def complaints(self):
        """What the page that is open logged, threw, or asked the network for."""
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
        return found

    def press(self, selector, key):
        """A key on the element, as a reader would press it."""
        self.evaluate(f"document.querySelector('{selector}').focus()")
        code = {"ArrowRight": 39, "ArrowLeft": 37, " ": 32, "Home": 36, "End": 35}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def shoot(self, path, selector):
        box = self.evaluate(f"(e => [e.offsetLeft, e.offsetTop, e.offsetWidth, e.offsetHeight])(document.querySelector('{selector}'))")
        clip = {"x": box[0], "y": box[1], "width": box[2], "height": box[3], "scale": 1}
        picture = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self.call("Browser.close")
        self.process.wait()
