"""The service `shop` of the example deployment in docs/operations. It accepts every POST, except:

- charges over 1000;
- the calls in REFUSED_ONCE, at the first time;
- the calls in SLOW take five seconds.

GET /ORDER returns the latest request for the order.

    python3 shop.py [--listen HOST:PORT]
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSED_ONCE = {("/releases", "order-6")} | {("/shipments", f"order-{number}") for number in (21, 22, 23)}
SLOW = {("/reservations", order) for order in ("order-7", "order-8", "order-slow-9")}
requests = {}


def answer(path, body):
    call = (path, body["order"])
    requests[f"/{body['order']}"] = body
    if call in SLOW:
        time.sleep(5)
    if path == "/charges" and body["amount"] > 1000:
        return 402, {"title": "Card declined", "balance": 3}
    if call in REFUSED_ONCE:
        REFUSED_ONCE.remove(call)
        return 402, {"title": "Not today"}
    return 200, {}


class Shop(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.respond(*answer(self.path, json.loads(body)))

    def do_GET(self):
        self.respond(200, requests[self.path])

    def respond(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == 200 else "application/problem+json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        pass


host, port = (sys.argv[-1] if len(sys.argv) > 1 else "127.0.0.1:18099").split(":")
ThreadingHTTPServer((host, int(port)), Shop).serve_forever()
