"""Keeps what agents in pods did, and the gates that they wait at.

POST /effects adds a line and answers how often it is there; GET lists all, each with its time.
PUT /gates/NAME opens a gate; GET /gates/NAME is 404 until then.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
EFFECTS = []
GATES = set()


class Ledger(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/effects":
            with LOCK:
                self.answer(200, list(EFFECTS))
        else:
            self.answer(200 if self.path in GATES else 404, None)

    def do_POST(self):
        line = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with LOCK:
            EFFECTS.append([time.time(), line])
            self.answer(200, sum(1 for _, known in EFFECTS if known == line))

    def do_PUT(self):
        GATES.add(self.path)
        self.answer(200, None)

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("", 8080), Ledger).serve_forever()
