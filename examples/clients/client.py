"""Submits a task, answers its callback, and waits for its end, with the clients that are generated from the OpenAPI documents.

    client.py URL PORT     URL: where `steward local` serves; PORT: where this program serves the agent's service

A deployment wants signed requests: see README.md.
"""

import json
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import steward
import steward_callbacks
from steward.api.default import status, submit
from steward.models import Submission, TaskView
from steward_callbacks.api.default import complete

questions = queue.Queue()


class Desk(BaseHTTPRequestHandler):
    """The service that asks: it keeps the question, and somebody answers later."""

    def do_POST(self):
        questions.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_):
        pass


def main(url, port):
    threading.Thread(target=HTTPServer(("127.0.0.1", int(port)), Desk).serve_forever, daemon=True).start()
    client = steward.Client(base_url=url)
    submission = Submission(task_id="python-1", workflow="approval", input_={"question": "A refund of 80?"})
    accepted = submit.sync(client=client, body=submission)
    print("submitted", accepted.task_id)

    question = questions.get(timeout=30)
    answer_at = urlsplit(question["answer_at"])
    token = answer_at.path.removeprefix("/callbacks/")
    callbacks = steward_callbacks.Client(base_url=f"{answer_at.scheme}://{answer_at.netloc}")
    complete.sync(token, client=callbacks, body={"approved": True})
    print("answered:", question["question"])

    task = status.sync(accepted.task_id, client=client, wait="20s")
    assert isinstance(task, TaskView), task
    print(task.process_state.value if hasattr(task.process_state, "value") else task.process_state, task.output)
    refused = submit.sync(client=client, body=Submission(task_id="python-2", workflow="none"))
    print(refused.status, refused.type_)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
