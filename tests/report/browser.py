"""A headless Chromium, spoken to over its own pipe: no driver, no port, no other package."""

import json
import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which root may not have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_browser():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Commands go in on descriptor 3 and answers come out of 4, each ended by a zero byte."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.out, to_write = os.pipe()
        high = [os.dup(fd) for fd in (to_read, to_write)]  # 3 and 4 may be among these: out of the way first
        copies = [fd if fd > 4 else os.dup(fd) for fd in high]

        def place():
            os.dup2(copies[0], 3)
            os.dup2(copies[1], 4)

        argv = [find_browser(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(argv, preexec_fn=place, pass_fds=(3, 4), **quiet)
        for fd in {to_read, to_write, *high, *copies}:
            os.close(fd)
        self.buffer, self.number, self.session, self.events = b"", 0, None, []
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.out, 1 << 16)
            assert more, "the browser has gone"
            self.buffer += more
        head, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(head)

    def call(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.to, json.dumps(command).encode() + b"\0")
        while (answer := self.message()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, file, hash="", width=1100, height=800, dark=False, phone=False):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=file.as_uri() + hash)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[-1:]) or not self.ready(
            file
        ):
            self.events.append(self.message())
        self.settle()

    def ready(self, file):
        return self.run("location.pathname") == file.as_uri().removeprefix("file://")

    def run(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector):
        """With the mouse, where the element is: what is hidden or covered cannot be clicked."""
        where = f"""(() => {{
            const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: "center"}});
            const b = e.getBoundingClientRect(), p = [b.x + b.width / 2, b.y + b.height / 2];
            return e.contains(document.elementFromPoint(...p)) ? p : null; }})()"""
        place = self.run(where)
        assert place, f"{selector} is hidden or covered"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        self.settle()

    def settle(self):
        """Until what was set off has happened and been drawn."""
        self.run("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 20))")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def complaints(self):
        """Errors in the console, scripts and requests that were refused or failed."""
        self.run("0")
        bad = ("Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")
        return [event["params"] for event in self.events if event.get("method") in bad]

    def requests(self):
        sent = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in sent if url != "about:blank"]

    def close(self):
        os.close(self.to)
        self.process.kill()
        self.process.wait()
        os.close(self.out)
