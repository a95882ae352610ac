"""Deletes a stack that `infra/verify` made, with all that was made around it and with its tables. Again is harmless.

    cleanup.py STACK

Everything is deleted by the exact name that CloudFormation says or that the tests gave.
"""

import sys

import boto3
from botocore.exceptions import ClientError


# The stacks that the tests deploy beside the main stack.
OWN_STACKS = ("minutely", "courier", "invoker", "sender", "publisher", "reader")


def resources(stack):
    """The type and physical name of each resource of a stack and of those nested in it."""
    cloudformation = boto3.client("cloudformation")
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
    for resource in (resource for page in pages for resource in page["StackResourceSummaries"]):
        name = resource.get("PhysicalResourceId")
        yield resource["ResourceType"], name
        if name and resource["ResourceType"] == "AWS::CloudFormation::Stack":
            yield from resources(name)


def delete_stack(stack):
    cloudformation = boto3.client("cloudformation")
    cloudformation.delete_stack(StackName=stack)
    cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig={"Delay": 2, "MaxAttempts": 600})
    print(f"deleted stack {stack}")


def delete_rules(bus):
    """EventBridge deletes no bus that has rules: those of triggers and of the test."""
    events = boto3.client("events")
    for rule in events.list_rules(EventBusName=bus)["Rules"]:
        targets = events.list_targets_by_rule(Rule=rule["Name"], EventBusName=bus)["Targets"]
        if targets:
            events.remove_targets(Rule=rule["Name"], EventBusName=bus, Ids=[target["Id"] for target in targets])
        events.delete_rule(Name=rule["Name"], EventBusName=bus)


def attempt(what, delete, **arguments):
    try:
        delete(**arguments)
        print(f"deleted {what}")
    except ClientError as error:
        # It may be gone, or never have been.
        print(f"not deleted: {what}: {error}")


def main(stack):
    try:
        found = list(resources(stack))
    except ClientError as error:
        sys.exit(f"cleanup: {error}")
    for own in OWN_STACKS:
        delete_stack(f"{stack}-{own}")
    events = boto3.client("events")
    attempt(f"the rules of bus {stack}-orders", delete_rules, bus=f"{stack}-orders")
    attempt(f"bus {stack}-orders", events.delete_event_bus, Name=f"{stack}-orders")
    for kind, name in found:
        if kind == "AWS::Events::EventBus" and name:
            attempt(f"the rules of bus {name}", delete_rules, bus=name)
    delete_stack(stack)
    dynamodb, sqs, secrets = (boto3.client(service) for service in ("dynamodb", "sqs", "secretsmanager"))
    for kind, name in found:
        if kind == "AWS::DynamoDB::Table" and name:
            attempt(f"protection of {name}", dynamodb.update_table, TableName=name, DeletionProtectionEnabled=False)
            attempt(f"table {name}", dynamodb.delete_table, TableName=name)
    for queue in (f"client-{stack}", f"{stack}-alerts", f"{stack}-orders", f"{stack}-announcements"):
        attempt(f"queue {queue}", lambda queue=queue: sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=queue)["QueueUrl"]))
    for secret in (f"{stack}-own", f"{stack}-foreign"):
        attempt(f"secret {secret}", secrets.delete_secret, SecretId=secret, ForceDeleteWithoutRecovery=True)


if __name__ == "__main__":
    main(sys.argv[1])
