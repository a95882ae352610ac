"""Deletes what `infra/verify STACK` created, so that nothing that costs is left. It can be interrupted and repeated at any time.

    cleanup.py STACK [--created]

The tag `steward:verify` with the stack's name as its value decides what is deleted. `infra/deploy` sets it on each stack of
the run, CloudFormation copies it to the stack's resources, and the tests set it on what they create themselves. Names and
prefixes of names decide nothing: a stack, a table or a bucket without this tag is never touched, whatever its name is. With
`--created`, as `infra/verify` calls it after its run, a stack of this name without the tag is an error.

Each run looks for what is left. It does not need the stacks: the tables and the bucket outlive them.
"""

import os
import sys

import boto3
from botocore.exceptions import BotoCoreError, ClientError

# As the other tools do; boto3 itself reads only AWS_DEFAULT_REGION.
if region := os.environ.get("AWS_REGION"):
    boto3.setup_default_session(region_name=region)

TAG = "steward:verify"

# Where `infra/deploy` puts the uploads of a run, in the bucket of the stack that the SAM CLI creates for all deployments.
UPLOADS = "steward-verify/{}/"
UPLOADS_STACK = "aws-sam-cli-managed-default"

# Half an hour for a stack, and 20 minutes for a table: its capacity mode may be changing.
STACK_WAIT = {"Delay": 2, "MaxAttempts": 900}
TABLE_WAIT = {"Delay": 2, "MaxAttempts": 600}

# What the services answer if a resource does not exist. The list of tagged resources shows deleted ones for some time.
MISSING = {
    "AWS.SimpleQueueService.NonExistentQueue", "NoSuchBucket", "QueueDoesNotExist", "ResourceNotFoundException",
}


def has_tag(tags, stack):
    return {"Key": TAG, "Value": stack} in tags


def all_stacks():
    pages = boto3.client("cloudformation").get_paginator("describe_stacks").paginate()
    return [each for page in pages for each in page["Stacks"]]


def tagged_stacks(stack):
    """The ids of the run's stacks, the main stack last: the others deregister their agents there. Nested stacks are deleted with theirs."""
    found = [each for each in all_stacks() if has_tag(each.get("Tags", []), stack) and "ParentId" not in each]
    return [each["StackId"] for each in sorted(found, key=lambda each: each["StackName"] == stack)]


def untagged_stacks(stack):
    """The ids of stacks with the run's name, but without its tag: at most one."""
    return [each["StackId"] for each in all_stacks()
            if each["StackName"] == stack and not has_tag(each.get("Tags", []), stack)]


def tagged_resources(stack):
    """The ARNs of the run's resources, also of those that belong to no stack."""
    client = boto3.client("resourcegroupstaggingapi")
    pages = client.get_paginator("get_resources").paginate(TagFilters=[{"Key": TAG, "Values": [stack]}])
    mappings = (mapping for page in pages for mapping in page["ResourceTagMappingList"])
    return [mapping["ResourceARN"] for mapping in mappings if has_tag(mapping["Tags"], stack)]


def buses(stack_id):
    """The names of a stack's event buses."""
    pages = boto3.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack_id)
    found = (each for page in pages for each in page["StackResourceSummaries"] if each["ResourceType"] == "AWS::Events::EventBus")
    return [each["PhysicalResourceId"] for each in found if each.get("PhysicalResourceId")]


def delete_stack(stack_id):
    cloudformation = boto3.client("cloudformation")
    cloudformation.delete_stack(StackName=stack_id)
    cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack_id, WaiterConfig=STACK_WAIT)


def delete_table(arn):
    """DynamoDB refuses to change or delete a table that is being changed."""
    dynamodb, name = boto3.client("dynamodb"), arn.rsplit("/", 1)[-1]
    table = dynamodb.describe_table(TableName=name)["Table"]
    if table["TableStatus"] != "DELETING":
        active = dynamodb.get_waiter("table_exists")
        active.wait(TableName=name, WaiterConfig=TABLE_WAIT)
        if table.get("DeletionProtectionEnabled"):
            dynamodb.update_table(TableName=name, DeletionProtectionEnabled=False)
            active.wait(TableName=name, WaiterConfig=TABLE_WAIT)
        dynamodb.delete_table(TableName=name)
    dynamodb.get_waiter("table_not_exists").wait(TableName=name, WaiterConfig=TABLE_WAIT)


def delete_versions(versions):
    """S3 answers a batch with success, and lists the objects that it did not delete."""
    errors = [error for answer in versions.delete() for error in answer.get("Errors", [])]
    if errors:
        raise ClientError({"Error": errors[0]}, "DeleteObjects")


def delete_bucket(arn):
    bucket = boto3.resource("s3").Bucket(arn.rsplit(":", 1)[-1])
    delete_versions(bucket.object_versions)
    bucket.delete()


def delete_queue(arn):
    sqs = boto3.client("sqs")
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=arn.rsplit(":", 1)[-1])["QueueUrl"])


def delete_secret(arn):
    boto3.client("secretsmanager").delete_secret(SecretId=arn, ForceDeleteWithoutRecovery=True)


def delete_rules(bus):
    """EventBridge deletes no bus that has rules: those of triggers and of the tests."""
    events = boto3.client("events")
    for page in events.get_paginator("list_rules").paginate(EventBusName=bus):
        for rule in page["Rules"]:
            targets = events.list_targets_by_rule(Rule=rule["Name"], EventBusName=bus)["Targets"]
            if targets:
                events.remove_targets(Rule=rule["Name"], EventBusName=bus, Ids=[target["Id"] for target in targets])
            events.delete_rule(Name=rule["Name"], EventBusName=bus)


def delete_bus(arn):
    bus = arn.rsplit("/", 1)[-1]
    delete_rules(bus)
    boto3.client("events").delete_event_bus(Name=bus)


def delete_uploads(prefix):
    """What `sam deploy` uploaded for the run's stacks. Other deployments share the bucket."""
    managed = [each for each in all_stacks() if each["StackName"] == UPLOADS_STACK]
    for output in (output for each in managed for output in each.get("Outputs", [])):
        if output["OutputKey"] == "SourceBucket":
            uploads = boto3.resource("s3").Bucket(output["OutputValue"]).object_versions
            delete_versions(uploads.filter(Prefix=prefix))


# By the beginning of an ARN's part behind its account. Only these outlive the stacks, or never belonged to one.
DELETE = {
    ("dynamodb", "table/"): delete_table,
    ("s3", ""): delete_bucket,
    ("sqs", ""): delete_queue,
    ("secretsmanager", "secret:"): delete_secret,
    ("events", "event-bus/"): delete_bus,
}


def of_kind(arn):
    """The function that deletes a resource; `None` if CloudFormation deletes it."""
    _, _, service, _, _, resource = arn.split(":", 5)
    return next((delete for (of, prefix), delete in DELETE.items() if service == of and resource.startswith(prefix)), None)


class Cleanup:
    """Does one thing after the other. A failure is reported, and does not keep the others."""

    def __init__(self):
        self.failed = False

    def attempt(self, action, argument, what):
        """What the action finds; nothing if it fails."""
        try:
            found = action(argument)
            print(f"{what}: done", flush=True)
            return found
        except (BotoCoreError, ClientError) as error:
            if not isinstance(error, ClientError) or error.response["Error"]["Code"] not in MISSING:
                self.fail(f"{what}: {error}")
            return []

    def fail(self, what):
        self.failed = True
        print(f"NOT done: {what}", file=sys.stderr, flush=True)


def main(stack, created=False):
    """Returns the exit status."""
    cleanup = Cleanup()
    stacks = cleanup.attempt(tagged_stacks, stack, "list stacks")
    if cleanup.failed:
        # What belongs to a stack is deleted after it.
        return 1
    for stack_id in stacks:
        for bus in cleanup.attempt(buses, stack_id, "list buses"):
            cleanup.attempt(delete_rules, bus, f"delete the rules of {bus}")
        cleanup.attempt(delete_stack, stack_id, f"delete {stack_id}")
    for arn in cleanup.attempt(tagged_resources, stack, "list resources"):
        if delete := of_kind(arn):
            cleanup.attempt(delete, arn, f"delete {arn}")
    uploads = UPLOADS.format(stack)
    cleanup.attempt(delete_uploads, uploads, f"delete {uploads}")
    for stack_id in cleanup.attempt(untagged_stacks, stack, "list stacks without the tag") if created else []:
        cleanup.fail(f"delete {stack_id}: it lacks the tag {TAG}={stack}")
    return int(cleanup.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], created="--created" in sys.argv[2:]))
