"""Starts the emulator with six things mended; called by `emulator`."""

import json
import re
import socketserver

from ministack.app import main
from ministack.core import iam_actions, iam_evaluator
from ministack.services import lambda_svc, sqs
from ministack.services.cloudformation import engine, provisioners

# The server of the functions' runtime API answers in two small writes, and with Nagle's algorithm on
# the second waits for the acknowledgement of the first: 40 ms for each invocation.
socketserver.StreamRequestHandler.disable_nagle_algorithm = True

# A nested template is deployed without its SAM transform.
deploy_nested, parse = provisioners._cfn_nested_stack_deploy, engine._parse_template


def parse_and_transform(body):
    transformed = engine._apply_transforms(parse(body))
    transformed.pop("Transform", None)
    return transformed


def deploy_transformed(*arguments, **options):
    engine._parse_template = parse_and_transform
    try:
        return deploy_nested(*arguments, **options)
    finally:
        engine._parse_template = parse


provisioners._cfn_nested_stack_deploy = deploy_transformed

# A batch is allowed to whom the single message is: IAM has no action of its own for it.
extract = iam_actions.extract_iam_action


def extract_without_batch(*request):
    action = extract(*request)
    if action in ("sqs:SendMessageBatch", "sqs:DeleteMessageBatch", "sqs:ChangeMessageVisibilityBatch"):
        return action.removesuffix("Batch")
    return action


iam_actions.extract_iam_action = extract_without_batch

# IAM is asked of each statement of a batch: what it does, on the table that it names.
transaction_checks = iam_actions.dynamodb_transaction_checks
STATEMENT = re.compile(r'(INSERT|UPDATE|DELETE|SELECT)[^"]*"([^"]+)"')


def checks_of_statements(action, body, region, account):
    if action != "dynamodb:BatchExecuteStatement":
        return transaction_checks(action, body, region, account)
    statements = (STATEMENT.match(each["Statement"]) for each in json.loads(body)["Statements"])
    return [
        (f"dynamodb:PartiQL{verb.title()}", f"arn:aws:dynamodb:{region}:{account}:table/{table}")
        for verb, table in (statement.groups() for statement in statements if statement)
    ]


iam_actions.dynamodb_transaction_checks = checks_of_statements

# A function URL that IAM guards tells the function who is calling.
build_event = lambda_svc._build_function_url_event


def build_event_with_caller(*arguments, **options):
    event = build_event(*arguments, **options)
    if not options.get("anonymous"):
        caller = iam_evaluator.request_caller_arn(event["headers"])
        event["requestContext"]["authorizer"] = {"iam": {"userArn": caller}}
    return event


lambda_svc._build_function_url_event = build_event_with_caller

# Which queues send their dead letters to this one: it has no such operation.
def list_dead_letter_source_queues(request, _url):
    queue = sqs._get_q(request["QueueUrl"], "sqs:ListDeadLetterSourceQueues")
    arn = queue["attributes"]["QueueArn"]
    policies = ((url, queue["attributes"].get("RedrivePolicy") or "{}") for url, queue in sqs._queues.items())
    return {"queueUrls": [url for url, policy in policies if json.loads(policy).get("deadLetterTargetArn") == arn]}


sqs._HANDLERS["ListDeadLetterSourceQueues"] = list_dead_letter_source_queues

main()
