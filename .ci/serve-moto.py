"""Serves moto on 127.0.0.1:$PORT until it is ended.

moto checks a condition and writes the item in two steps, without a lock between requests. So requests to DynamoDB are
answered one after the other here; without that, of two writers on the same condition both may win.
"""

import os
import threading

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple


class OneByOne:
    """A WSGI application that answers one request to DynamoDB at a time."""

    def __init__(self, app):
        self.app = app
        self.lock = threading.Lock()

    def __call__(self, environ, start_response):
        if not environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB_"):
            return self.app(environ, start_response)
        with self.lock:
            return list(self.app(environ, start_response))


app = OneByOne(DomainDispatcherApplication(create_backend_app))
run_simple(
    "127.0.0.1",
    int(os.environ["PORT"]),
    app,
    threaded=True,
    request_handler=MotoRequestHandler,
)
