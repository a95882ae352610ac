"""An agent of Steward in Python: calls an HTTP service. `work.py` decides what it sends.

As a Lambda function it receives batches from its queue (`lambda_handler`). As a process it polls the queue itself:

    python3 lambda_function.py

The contract that it implements, with the rules R1 to R24, is docs/agent-contract.md of Steward. It ignores `responses`
of a request, and calls once for each delivery: the retries are the attempts of the scheduler.
"""

import http.client
import json
import logging
import math
import os
import socket
import string
import threading
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

import boto3

from work import body_of

QUEUE_URL = os.environ.get("QUEUE_URL")
REPLY_QUEUE_URL = os.environ["REPLY_QUEUE_URL"]
SERVICE = urlsplit(os.environ["SERVICE_URL"])
AGENT_NAME = os.environ["AGENT_NAME"]

OUTPUT_BYTES_MAX = 128 * 1024
DETAIL_BYTES_MAX = 4 * 1024
CALL_WITHIN_MS_MAX = 100_000
WAIT_MS_MAX = 366 * 24 * 3_600_000  # No task lives longer.

# The fields of a request that this agent reads, and their types.
REQUIRED = {name: str for name in ("task_id", "step", "complete_by", "idempotency_key", "agent", "method", "path")}
REQUIRED |= {name: int for name in ("attempt", "incarnation", "call_within_ms")}
OPTIONAL = {"idempotent": bool, "may_have_run": bool, "tenant": str}

logging.basicConfig()
log = logging.getLogger("agent")
log.setLevel(logging.INFO)
sqs = boto3.client("sqs")

# R11: in place of an outcome, a call whose outcome was not known by complete-by.
OVERDUE = {"status": "overdue"}


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
    check(request)
    earlier = 2 if "redriven" in attributes else receive_count - 1
    outcome = attempt(request, attributes.get("traceparent"), earlier)
    log.info("task %s step %s attempt %s: %s", request["task_id"], request["step"], request["attempt"],
             outcome["status"] if outcome else "no reply")
    if outcome is None:
        return
    # R6: what identifies the attempt is returned unchanged.
    call = {name: request[name] for name in ("step", "action", "attempt", "incarnation") if name in request}
    call |= {"agent": AGENT_NAME}
    message = {"task_id": request["task_id"]}
    if outcome is OVERDUE:  # R11
        message |= {"type": "wake", "cause": "overdue", "call": call}
    else:
        message |= {"type": "reply", "outcome": outcome} | call
    trace = {}
    if attributes.get("traceparent"):  # R7
        trace["traceparent"] = {"DataType": "String", "StringValue": attributes["traceparent"]}
    # SQS refuses these two characters unless they are escaped.
    text = compact(message).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    # The queue is fair: replies of a tenant with much load do not delay those of others.
    group = {"MessageGroupId": request["tenant"]} if request.get("tenant") else {}
    sqs.send_message(QueueUrl=REPLY_QUEUE_URL, MessageBody=text, MessageAttributes=trace, **group)


def check(request):
    """R3: raises an exception if the request is unreadable, so that the agent neither calls nor replies."""
    given = REQUIRED | {name: kind for name, kind in OPTIONAL.items() if request.get(name) is not None}
    is_known = request.get("action", "do") in ("do", "undo") and request["agent"] == AGENT_NAME
    is_known = is_known and request["method"] in ("GET", "POST", "PUT", "PATCH", "DELETE")
    if not is_known or any(type(request[name]) is not kind for name, kind in given.items()):
        raise ValueError("no request for this agent")
    seconds_left(request)


def seconds_left(request):
    return (datetime.fromisoformat(request["complete_by"]) - datetime.now(timezone.utc)).total_seconds()


def attempt(request, traceparent, earlier):
    """The outcome of an attempt that was delivered this often before; None if the agent must stay silent."""
    calls = request.get("idempotent", True) is True  # For other steps, this agent never calls.
    # R17: how many other deliveries may have made a call and died: earlier ones, and one of another message.
    others = earlier + bool(request.get("may_have_run")) if calls else 0
    left = seconds_left(request)
    if left <= 0:  # R11
        if earlier:
            return OVERDUE if others > 1 else None
        return deferred("the request arrived after complete-by", 0, may_have_run=calls)
    refusal = reason_to_refuse(request)
    if refusal:
        return after_others(failed(refusal, may_have_run=False), others)
    within_ms = min(request["call_within_ms"], CALL_WITHIN_MS_MAX)
    outcome = call(request, traceparent, earlier > 0, min(left, within_ms / 1000))
    return after_others(outcome, others) if seconds_left(request) > 0 else OVERDUE  # R11


def after_others(outcome, others):
    """R16, R17: a failure is certain only for the delivery that got it; so many others may have called."""
    if outcome["status"] != "failed" or others == 0:
        return outcome
    if others > 1:
        return {"status": "unknown"} | {name: outcome[name] for name in ("reason", "detail") if name in outcome}
    return outcome | {"may_have_run": True}


def reason_to_refuse(request):
    """Why this agent does not call for a request; None if it does."""
    if request.get("idempotent", True) is not True:
        return "this agent serves only idempotent steps"  # R18: it has no store in which it could claim a call.
    if request.get("auth") is not None:
        return "this agent cannot sign calls"
    return None if request.get("output") is None else "this agent does not implement `output`"


def call(request, traceparent, redelivered, timeout):
    """The outcome of one call, which takes at most `timeout` seconds."""
    deadline = time.monotonic() + timeout
    body = body_of(request)
    body = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": request["idempotency_key"]}  # R9
    if traceparent:
        headers["traceparent"] = traceparent
    path = quote(SERVICE.path.rstrip("/") + request["path"], safe=string.punctuation)
    connect = http.client.HTTPSConnection if SERVICE.scheme == "https" else http.client.HTTPConnection
    connection = connect(SERVICE.netloc, timeout=timeout)
    try:
        connection.connect()
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
    except OSError:
        return deferred("no connection to the service", 5_000, may_have_run=redelivered)
    # R14: `timeout` limits each operation of the socket, the timer all of them together.
    timer = threading.Timer(left, socket.socket.shutdown, (connection.sock, socket.SHUT_RDWR))
    timer.start()
    try:
        connection.request(request["method"], path, body, headers)
        response = connection.getresponse()
        answer = response.read(OUTPUT_BYTES_MAX + 1)
        is_broken = response.length and len(answer) <= OUTPUT_BYTES_MAX
    except (OSError, http.client.HTTPException):
        is_broken = True
    finally:
        timer.cancel()
        connection.close()
    if is_broken or time.monotonic() >= deadline:
        return {"status": "unknown", "reason": "the service did not answer"}
    return outcome_of(request, response, answer, redelivered)


def outcome_of(request, response, answer, redelivered):
    """The outcome that a response stands for. What the service says in an error is for operators only (R22)."""
    if 200 <= response.status < 300:
        return completed(answer, redelivered)
    outcome = outcome_of_error(request, response, redelivered)
    detail = answer[:DETAIL_BYTES_MAX].decode(errors="replace")
    return outcome | {"detail": detail} if detail else outcome


def outcome_of_error(request, response, redelivered):
    """The outcome that the status of an error stands for, by the contract's table of responses."""
    status = response.status
    reason = f"the service responded {status}"
    wait_ms = retry_after_ms(response.headers.get("Retry-After", ""))
    if status in (425, 429):  # R15
        return deferred(reason, 10_000 if wait_ms is None else wait_ms, may_have_run=redelivered)
    # An earlier call with the same key may still be in progress.
    is_repeated = redelivered or request.get("may_have_run") or request.get("action") == "undo"
    is_conflict = status in (409, 423)
    if status == 408 or status >= 500 or is_conflict and is_repeated:  # R14
        unknown = {"status": "unknown", "reason": reason}
        return unknown if wait_ms is None else deferred(reason, wait_ms, may_have_run=True) | {"call_in_doubt": True}
    is_refusal = 400 <= status < 500 and not is_conflict
    return failed(reason, may_have_run=not is_refusal)  # R16


def completed(answer, redelivered):
    """The outcome of a successful call, if its output obeys the contract's limits."""
    if len(answer) > OUTPUT_BYTES_MAX:  # R13
        return failed("the response is too large", may_have_run=True)
    output = output_of(answer)
    if len(compact(output).encode()) > OUTPUT_BYTES_MAX:
        return failed("the response is too large", may_have_run=True)
    return {"status": "completed", "output": output, "may_continue": redelivered}


def output_of(answer):
    """The call succeeded, whatever the service says: JSON, other text, or other bytes."""
    try:
        text = answer.decode("utf-8-sig")
    except ValueError:
        return {"not_text": len(answer)}
    try:
        output = json.loads(text) if text.strip() else None
        is_valid = fits(output) and compact(output) is not None
    except (ValueError, RecursionError):
        is_valid = False
    return output if is_valid else {"text": text}


def fits(value, levels=32):
    """Whether a value has at most 32 levels, and integers of at most 64 bits."""
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(fits(item, levels - 1) for item in inner)
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def compact(value):
    """R13: with escapes and spaces, an output of the maximum size would be too large for a message."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def retry_after_ms(text):
    """A `Retry-After`, which is a number of seconds or a date; None if it is neither."""
    try:
        seconds = float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return math.ceil(min(max(seconds * 1000, 0), WAIT_MS_MAX))


def failed(reason, may_have_run):
    return {"status": "failed", "reason": reason, "may_have_run": may_have_run, "call_in_doubt": may_have_run}


def deferred(reason, wait_ms, may_have_run):
    return {"status": "deferred", "reason": reason, "retry_after_ms": wait_ms, "may_have_run": may_have_run}


def poll():
    """Does the work of Lambda: receives batches, and deletes what was handled (R2)."""
    log.info("polling")
    while True:
        received = sqs.receive_message(
            # One, because the visibility timeout of the others would pass meanwhile.
            QueueUrl=QUEUE_URL, MaxNumberOfMessages=1, WaitTimeSeconds=20,
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
