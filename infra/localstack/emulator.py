"""Starts the emulator with four things mended; called by `emulator`."""

import socketserver

from ministack.app import main
from ministack.core import iam_actions, iam_evaluator
from ministack.services import lambda_svc
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

# A function URL that IAM guards tells the function who is calling.
build_event = lambda_svc._build_function_url_event


def build_event_with_caller(*arguments, **options):
    event = build_event(*arguments, **options)
    if not options.get("anonymous"):
        caller = iam_evaluator.request_caller_arn(event["headers"])
        event["requestContext"]["authorizer"] = {"iam": {"userArn": caller}}
    return event


lambda_svc._build_function_url_event = build_event_with_caller

main()
