"""The stand-in service of a project, which refuses charges with 429 while there is a file `busy`. Run in the project's folder:

    python3 busy-service.py PORT

Also prints each call that reaches the service, with its idempotency key.
"""

import io
import json
import os
import sys
from http.server import ThreadingHTTPServer

sys.path.insert(0, os.getcwd())
from service import Service  # noqa: E402


class BusyService(Service):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        order = json.loads(body)["order"]
        if self.path == "/charges" and os.path.exists("busy"):
            print("busy", self.path, order, flush=True)
            self.send_response(429)
            self.send_header("Retry-After", "5")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        print("call", self.path, order, self.headers["Idempotency-Key"], flush=True)
        # `Service` reads the body again.
        self.rfile = io.BytesIO(body)
        super().do_POST()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), BusyService).serve_forever()
