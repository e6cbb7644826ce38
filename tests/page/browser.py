# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium through its debugging pipe: opens pages, types, clicks, drops files and takes pictures."""

import base64
import json
import os
import shutil
import subprocess
import time

PROGRAM = shutil.which("chromium")


class Browser:
    def __init__(self, folder):
        ours, theirs = os.pipe(), os.pipe()

        def wire():  # Chromium reads commands from 3 and writes answers to 4
            os.dup2(ours[0], 30)
            os.dup2(theirs[1], 31)
            os.dup2(30, 3)
            os.dup2(31, 4)
        self.process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", f"--user-data-dir={folder}/profile", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.back = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(theirs[0], "rb", buffering=0)
        self.rest, self.number, self.errors = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:  # an orderly end: what is killed leaves children behind that go on writing into the profile
            self.call("Browser.close")
            self.process.wait(timeout=20)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.to.close()
        self.back.close()

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self.to.write(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                more = self.back.read(1 << 20)
                if not more:
                    raise RuntimeError("Chromium ended")
                self.rest += more
            text, _, self.rest = self.rest.partition(b"\0")
            told = json.loads(text)
            if told.get("id") == self.number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
            if told.get("method") == "Runtime.exceptionThrown":
                details = told["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            if told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.errors.append(told["params"]["entry"]["text"])

    def open(self, address, width=1440, height=900, dark=False):
        return Page(self, address, width, height, dark)


class Page:
    def __init__(self, browser, address, width, height, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # as the page in front
        self.resize(width, height)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.call("Page.navigate", url=address)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def run(self, script):
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{script}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def wait(self, condition, seconds=60):
        end = time.time() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.time() > end:
                raise RuntimeError(f"after {seconds} s not yet: {condition}; the page says: {self.run('document.body.innerText.slice(0, 1500)')}")
            time.sleep(0.02)

    def type(self, field, text):
        """Into a field of the question that is emptied first, key by key as far as the page can tell."""
        self.run(f"(document.getElementById('q-{field}').focus(), document.getElementById('q-{field}').select())")
        for key in text:
            self.call("Input.insertText", text=key)

    def press(self, key, code=0):
        for kind in ("rawKeyDown", "char", "keyUp") if key == "Enter" else ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code or {"Enter": 13, "Tab": 9}.get(key, 0),
                      text="\r" if kind == "char" else "")

    def picture(self, file, whole=False):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(file, "wb") as out:
            out.write(base64.b64decode(shot["data"]))
