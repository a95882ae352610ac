"""Runs the functions of LocalStack's Lambda as processes of this machine, each with a runtime API of its own:
LocalStack itself runs them in Docker only. For `provided.*` runtimes, whose code has a `bootstrap`."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from localstack import config
from localstack.services.lambda_.invocation.executor_endpoint import StatusErrorException
from localstack.services.lambda_.invocation.lambda_models import InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import RuntimeExecutor

# How long a process may take until it asks for its first invocation, in seconds.
START_TIMEOUT = 30


class RuntimeApi(BaseHTTPRequestHandler):
    """Lambda's runtime API: the process asks for the next invocation, and posts the response or the error."""

    protocol_version = "HTTP/1.1"
    # With Nagle's algorithm the second of two small writes waits 40 ms for an acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        process = self.server.process
        process.started.set()
        invocation = process.invocations.get()
        if invocation is None:
            return self.respond(410)
        payload = invocation["payload"]
        deadline = int((time.time() + process.timeout) * 1000)
        self.respond(
            200,
            payload.encode() if isinstance(payload, str) else payload,
            {
                "Lambda-Runtime-Aws-Request-Id": invocation["invoke-id"],
                "Lambda-Runtime-Deadline-Ms": str(deadline),
                "Lambda-Runtime-Invoked-Function-Arn": invocation["invoked-function-arn"],
                "Lambda-Runtime-Trace-Id": invocation.get("trace-id") or "",
                "Content-Type": "application/json",
            },
        )

    def do_POST(self):
        body = self.body()
        self.server.process.results.put((body, not self.path.endswith("/response")))
        self.respond(202)

    def respond(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def body(self):
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def log_message(self, *_):
        pass


class FunctionProcess:
    """A process that runs a `bootstrap`; it handles one invocation after the other."""

    def __init__(self, code, environment, timeout):
        self.timeout = timeout
        self.started = threading.Event()
        self.invocations, self.results, self.lines = queue.Queue(), queue.Queue(), queue.Queue()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), RuntimeApi)
        self.server.process, self.server.daemon_threads = self, True
        threading.Thread(target=self.server.serve_forever, args=[0.05], daemon=True).start()
        api = f"127.0.0.1:{self.server.server_port}"
        self.process = subprocess.Popen(
            [code / "bootstrap"],
            cwd=code,
            env=environment | {"AWS_LAMBDA_RUNTIME_API": api, "LAMBDA_TASK_ROOT": str(code)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self.watch, daemon=True).start()

    def wait_until_started(self):
        if not self.started.wait(START_TIMEOUT) or not self.is_running():
            self.stop()
            body = json.dumps({"errorType": "Runtime.ExitError", "errorMessage": "the function did not start"})
            raise StatusErrorException("the function did not start", payload=body.encode())

    def watch(self):
        """Keeps what the process prints. When it has ended, nobody waits for it any longer."""
        for line in self.process.stdout:
            self.lines.put(line.decode(errors="replace"))
        status = self.process.wait()
        error = {"errorType": "Runtime.ExitError", "errorMessage": f"exit status {status}"}
        self.results.put((json.dumps(error).encode(), True))
        self.started.set()
        self.invocations.put(None)
        self.server.shutdown()
        self.server.server_close()

    def is_running(self):
        return self.process.poll() is None

    def invoke(self, invocation):
        """The result, and whether it is an error."""
        self.invocations.put(invocation)
        try:
            return self.results.get(timeout=self.timeout)
        except queue.Empty:
            self.stop()
            error = {"errorMessage": f"Task timed out after {self.timeout}.00 seconds"}
            return json.dumps(error).encode(), True

    def stop(self):
        if self.is_running():
            os.killpg(self.process.pid, signal.SIGKILL)

    def logs(self):
        """What was printed since the last call."""
        lines = []
        while not self.lines.empty():
            lines.append(self.lines.get())
        return "".join(lines)


class ProcessRuntimeExecutor(RuntimeExecutor):
    """An execution environment of LocalStack's. A process that was killed is replaced at the next invocation."""

    process = None

    def start(self, env_vars):
        environment = {name: str(value) for name, value in env_vars.items()}
        self.environment = {"PATH": os.environ["PATH"]} | environment
        self.start_process()

    def start_process(self):
        settings = self.function_version.config
        code = Path(settings.code.get_unzipped_code_location())
        self.process = FunctionProcess(code, self.environment, int(settings.timeout))
        self.process.wait_until_started()

    def invoke(self, payload):
        if not self.process.is_running():
            self.start_process()
        body, is_error = self.process.invoke(payload)
        return InvocationResult(payload["invoke-id"], body, is_error=is_error, logs=self.get_logs())

    def stop(self):
        if self.process:
            self.process.stop()

    def get_address(self):
        return "127.0.0.1"

    def get_endpoint_from_executor(self):
        return "127.0.0.1"

    def get_runtime_endpoint(self):
        return f"http://127.0.0.1:{config.GATEWAY_LISTEN[0].port}/_localstack_lambda/{self.id}"

    def get_logs(self):
        return self.process.logs()

    @classmethod
    def prepare_version(cls, function_version):
        function_version.config.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version):
        pass
