# SPDX-License-Identifier: Apache-2.0
"""The page with the native planner behind it in place of its module, for machines without emscripten: a server on this machine."""

import http.server
import os
import subprocess
import sys
import threading

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
# What page/worker.js takes from the module. A module of 8 bytes is compiled, and not run.
MODULE = b"\0asm\1\0\0\0"
PLANNER = """
const createPlanner = async () => {
  const texts = new Map();
  const keep = (text) => { texts.set(texts.size + 1, text); return texts.size; };
  return {lengthBytesUTF8: (text) => text.length, _malloc: () => texts.size + 1, stringToUTF8: (text) => keep(text), _free: () => {}, _mpt_free: () => {},
    UTF8ToString: (at) => texts.get(at),
    _mpt_ask: (at) => { const call = new XMLHttpRequest(); call.open('POST', new URL('/ask', self.location.origin), false); call.send(texts.get(at)); return keep(call.responseText); }};
};
"""


class NativePage:
    """`program`: tests/page/answer.cpp. `address` is that of the page."""

    def __init__(self, program, folder):
        module, site = os.path.join(folder, "module"), os.path.join(folder, "site")
        os.makedirs(module)
        for name, content in (("planner.wasm", MODULE), ("planner.js", PLANNER.encode())):
            with open(os.path.join(module, name), "wb") as file:
                file.write(content)
        subprocess.run([sys.executable, os.path.join(ROOT, "scripts/page"), "-o", site, "--module", module], check=True, stdout=subprocess.DEVNULL)

        class Handler(http.server.SimpleHTTPRequestHandler):
            extensions_map = {".html": "text/html", ".wasm": "application/wasm"}

            def __init__(self, *arguments):
                super().__init__(*arguments, directory=site)

            def do_POST(self):
                question = self.rfile.read(int(self.headers["Content-Length"]))
                answer = subprocess.run([program], input=question, stdout=subprocess.PIPE, check=True).stdout
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                try:
                    self.wfile.write(answer)
                except ConnectionError:
                    pass  # a question that was typed over: nobody waits for it

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/index.html"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
