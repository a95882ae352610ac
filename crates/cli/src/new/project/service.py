"""A stand-in for your service, to try the project: it accepts every POST, once for each idempotency key.

    python3 service.py [PORT]

It refuses charges over 1000 for good, so that the task is undone.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

answers = {}


class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null") or {}
        key = self.headers.get("Idempotency-Key", "")
        if key not in answers:
            refused = self.path == "/charges" and body.get("amount", 0) > 1000
            answers[key] = (422, {"title": "over the limit"}) if refused else (200, {"number": len(answers) + 1})
            print(self.path, json.dumps(body), "refused" if refused else "done", flush=True)
        status, answer = answers[key]
        payload = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/problem+json" if status == 422 else "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    print(f"serving on http://127.0.0.1:{port}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Service).serve_forever()
