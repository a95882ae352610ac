"""The service `desk` of docs/callbacks.md: it keeps what it is sent, and GET /TASK returns where to answer.

    python3 desk.py [--listen HOST:PORT]
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

answer_at = {}


class Desk(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer_at[f"/{body['order']}"] = body["answer_at"]
        self.respond("{}")

    def do_GET(self):
        self.respond(answer_at[self.path])

    def respond(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


host, port = (sys.argv[-1] if len(sys.argv) > 1 else "127.0.0.1:9000").split(":")
ThreadingHTTPServer((host, int(port)), Desk).serve_forever()
