"""An agent of Steward in Python: calls an HTTP service. `work.py` decides what it sends.

As a Lambda function it receives batches from its queue (`lambda_handler`). As a process it polls the queue itself:

    python3 lambda_function.py

The contract that it implements, with the rules R1 to R22, is docs/agent-contract.md of Steward.
"""

import json
import logging
import os
import urllib.error
import urllib.request
from datetime import datetime, timezone

import boto3

from work import body_of

QUEUE_URL = os.environ.get("QUEUE_URL")
REPLY_QUEUE_URL = os.environ["REPLY_QUEUE_URL"]
SERVICE_URL = os.environ["SERVICE_URL"]
AGENT_NAME = os.environ["AGENT_NAME"]

OUTPUT_BYTES_MAX = 128 * 1024

logging.basicConfig()
log = logging.getLogger("agent")
log.setLevel(logging.INFO)
sqs = boto3.client("sqs")


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


service = urllib.request.build_opener(NoRedirects)


def lambda_handler(event, context):
    """Handles a batch, and reports the messages that SQS must deliver again."""
    failed = []
    for record in event["Records"]:
        try:
            handle(
                record["body"],
                {name: value.get("stringValue") for name, value in record["messageAttributes"].items()},
                int(record["attributes"]["ApproximateReceiveCount"]),
            )
        except Exception as error:  # R3: one message must not fail the others.
            # R19: the text of the error may contain payload, its type does not.
            log.error("message %s failed: %s", record["messageId"], type(error).__name__)
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}


def handle(body, attributes, receive_count):
    """Carries out a request, and sends the reply. If it raises an exception, the message stays in the queue (R2, R3)."""
    request = json.loads(body)
    if request["agent"] != AGENT_NAME or request.get("action", "do") not in ("do", "undo"):
        raise ValueError("no request for this agent")
    # R17: an earlier delivery may have made a call and died.
    redelivered = receive_count > 1 or "redriven" in attributes
    outcome = attempt(request, attributes.get("traceparent"), redelivered)
    log.info("task %s step %s attempt %s: %s", request["task_id"], request["step"], request["attempt"],
             outcome["status"] if outcome else "no reply")
    if outcome is None:
        return
    # R6: what identifies the attempt is returned unchanged.
    reply = {name: request[name] for name in ("task_id", "step", "action", "attempt", "incarnation") if name in request}
    reply |= {"type": "reply", "agent": AGENT_NAME, "outcome": outcome}
    trace = {}
    if "traceparent" in attributes:  # R7
        trace["traceparent"] = {"DataType": "String", "StringValue": attributes["traceparent"]}
    # R13: with escapes and spaces, an output of the maximum size would be too large for a message.
    text = json.dumps(reply, ensure_ascii=False, separators=(",", ":"))
    # The queue is fair: replies of a tenant with much load do not delay those of others.
    group = {"MessageGroupId": request["tenant"]} if "tenant" in request else {}
    sqs.send_message(QueueUrl=REPLY_QUEUE_URL, MessageBody=text, MessageAttributes=trace, **group)


def attempt(request, traceparent, redelivered):
    """The outcome of an attempt; None if the agent must stay silent."""
    if not request.get("idempotent", True):
        # R18: this agent has no store in which it could claim a call.
        return failed("this agent serves only idempotent steps", may_have_run=False)
    left = (datetime.fromisoformat(request["complete_by"]) - datetime.now(timezone.utc)).total_seconds()
    if left <= 0:  # R11
        return None if redelivered else deferred("the request arrived after complete-by", 0, may_have_run=True)
    call = urllib.request.Request(
        SERVICE_URL + request["path"], method=request["method"],
        data=json.dumps(body_of(request)).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": request["idempotency_key"]},  # R9
    )
    if traceparent:
        call.add_header("traceparent", traceparent)
    timeout = min(left, request.get("call_within_ms", 100_000) / 1000)
    try:
        with service.open(call, timeout=timeout) as response:
            output = response.read(OUTPUT_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        return refused(error, redelivered or request.get("may_have_run", False))
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return deferred("no connection to the service", 5_000, may_have_run=redelivered)
        return unknown(request)
    except OSError:  # R14: the call took too long, or the connection broke.
        return unknown(request)
    if len(output) > OUTPUT_BYTES_MAX:  # R13
        return failed("the response is too large", may_have_run=True)
    try:
        return {"status": "completed", "output": json.loads(output or b"null"), "may_continue": redelivered}
    except ValueError:
        return failed("the response is not JSON", may_have_run=True)


def refused(error, may_have_run):
    """The outcome for a status that is no success."""
    reason = f"the service responded {error.code}"
    if error.code == 429:  # R15
        wait = error.headers.get("Retry-After", "")
        return deferred(reason, int(wait) * 1000 if wait.isdigit() else 10_000, may_have_run)
    if not 400 <= error.code < 500 or error.code in (408, 409, 423):  # R14
        return {"status": "unknown", "reason": reason}
    return failed(reason, may_have_run)  # R16, R17


def unknown(request):
    """The outcome of a call without an answer; no reply after complete-by (R11)."""
    if datetime.fromisoformat(request["complete_by"]) <= datetime.now(timezone.utc):
        return None
    return {"status": "unknown", "reason": "the service did not answer"}


def failed(reason, may_have_run):
    return {"status": "failed", "reason": reason, "may_have_run": may_have_run}


def deferred(reason, wait_ms, may_have_run):
    return {"status": "deferred", "reason": reason, "retry_after_ms": wait_ms, "may_have_run": may_have_run}


def poll():
    """Does the work of Lambda: receives batches, and deletes what was handled (R2)."""
    log.info("polling")
    while True:
        received = sqs.receive_message(
            QueueUrl=QUEUE_URL, MaxNumberOfMessages=10, WaitTimeSeconds=20,
            MessageAttributeNames=["All"], MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        for message in received.get("Messages", []):
            attributes = message.get("MessageAttributes", {})
            record = {
                "messageId": message["MessageId"], "body": message["Body"], "attributes": message["Attributes"],
                "messageAttributes": {name: {"stringValue": value.get("StringValue")} for name, value in attributes.items()},
            }
            if not lambda_handler({"Records": [record]}, None)["batchItemFailures"]:
                sqs.delete_message(QueueUrl=QUEUE_URL, ReceiptHandle=message["ReceiptHandle"])


if __name__ == "__main__":
    poll()
