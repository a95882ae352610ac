"""Tests of infra/cleanup.py on moto: it leaves nothing of a run of infra/verify, and touches nothing else.

The run is interrupted before and after each of its calls, and each call fails once; then it is repeated.
"""

import contextlib
import functools
import io
import pathlib
import sys
import unittest
from unittest import mock

import boto3
import botocore.loaders
import botocore.session
import yaml
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws
from moto.events.models import EventBus, events_backends
from moto.s3.models import s3_backends

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "infra"))
import cleanup  # noqa: E402

RUN = "steward-try"

# Names that begin as the run's name or contain it, and one that it begins with.
OTHERS = ("steward", "steward-tr", "steward-try-payment", "steward-try2", "Steward-Try", "my-steward-try")

TABLES = ("TasksTable", "DocumentsTable", "WorkflowsTable")


def tags(run):
    return [{"Key": cleanup.TAG, "Value": run}] if run else []


def template(stack, run, tables):
    """A deployment as CloudFormation leaves it: with the stack's tag on the resources that outlive it. Moto does not copy tags."""
    table = {
        "Type": "AWS::DynamoDB::Table", "DeletionPolicy": "Retain",
        "Properties": {
            "BillingMode": "PAY_PER_REQUEST", "DeletionProtectionEnabled": True, "Tags": tags(run),
            "AttributeDefinitions": [{"AttributeName": "task_id", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "task_id", "KeyType": "HASH"}],
        },
    }
    resources = {name: table for name in tables} | {
        "PayloadsBucket": {
            "Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain",
            "Properties": {"Tags": tags(run)},
        },
        "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": f"{stack}-scheduler", "Tags": tags(run)}},
        "EventBus": {"Type": "AWS::Events::EventBus", "Properties": {"Name": stack, "Tags": tags(run)}},
    }
    return yaml.safe_dump({"Resources": resources})


def deploy(stack, run, tables=TABLES):
    body = template(stack, run, tables)
    boto3.client("cloudformation").create_stack(StackName=stack, TemplateBody=body, Tags=tags(run))
    boto3.client("events").put_rule(Name="trigger", EventBusName=stack, EventPattern='{"source": ["shop"]}')
    found = boto3.client("cloudformation").describe_stack_resource(StackName=stack, LogicalResourceId="PayloadsBucket")
    bucket = boto3.resource("s3").Bucket(found["StackResourceDetail"]["PhysicalResourceId"])
    bucket.Versioning().enable()
    for _ in range(2):
        bucket.put_object(Key="steps/1", Body=b"payload")


def deploy_agent(stack, run):
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": f"{stack}-requests", "Tags": tags(run)}}
    body = yaml.safe_dump({"Resources": {"Queue": queue}})
    boto3.client("cloudformation").create_stack(StackName=stack, TemplateBody=body, Tags=tags(run))


def create_outside_of_stacks(name, run):
    """What the tests create themselves."""
    flat = {tag["Key"]: tag["Value"] for tag in tags(run)}
    boto3.client("sqs").create_queue(QueueName=f"client-{name}", tags=flat)
    boto3.client("secretsmanager").create_secret(Name=f"{name}-own", SecretString="{}", Tags=tags(run))
    events = boto3.client("events")
    events.create_event_bus(Name=f"{name}-orders", Tags=tags(run))
    events.put_rule(Name="announce", EventBusName=f"{name}-orders", EventPattern='{"source": ["shop"]}')
    target = {"Id": "queue", "Arn": f"arn:aws:sqs:us-east-1:123456789012:client-{name}"}
    events.put_targets(Rule="announce", EventBusName=f"{name}-orders", Targets=[target])


def create_uploads():
    """The bucket of `sam deploy`, which all deployments of an account share."""
    template = {
        "Resources": {"Uploads": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "sam-uploads"}}},
        "Outputs": {"SourceBucket": {"Value": {"Ref": "Uploads"}}},
    }
    boto3.client("cloudformation").create_stack(StackName=cleanup.UPLOADS_STACK, TemplateBody=yaml.safe_dump(template))


def upload(prefix):
    boto3.client("s3").put_object(Bucket="sam-uploads", Key=f"{prefix}0123", Body=b"function")


def create_others(names):
    create_uploads()
    for other in names:
        deploy(other, None)
        create_outside_of_stacks(other, None)
        upload(f"{other}/")
    # Another run of verify, the name of which begins with this run's name, and one that this run's name begins with.
    for other in (f"{RUN}-2", RUN[:-1]):
        deploy_agent(f"{other}-courier", other)
        upload(cleanup.UPLOADS.format(other))
    # A table and a bucket of an earlier production stack, which had this run's name. They outlived it.
    deploy(RUN, None)
    boto3.client("events").delete_rule(Name="trigger", EventBusName=RUN)
    boto3.client("cloudformation").delete_stack(StackName=RUN)


def create_run(tables=TABLES, agents=("courier", "checked", "archive")):
    deploy(RUN, RUN, tables)
    for agent in agents:
        deploy_agent(f"{RUN}-{agent}", RUN)
    create_outside_of_stacks(RUN, RUN)
    upload(cleanup.UPLOADS.format(RUN))


def everything():
    """The names of all that exists, with its kind."""
    found = {("stack", each["StackName"]) for each in boto3.client("cloudformation").describe_stacks()["Stacks"]}
    found |= {("table", name) for name in boto3.client("dynamodb").list_tables()["TableNames"]}
    found |= {("queue", url) for url in boto3.client("sqs").list_queues().get("QueueUrls", [])}
    secrets = boto3.client("secretsmanager").list_secrets(IncludePlannedDeletion=True)["SecretList"]
    found |= {("secret", secret["Name"]) for secret in secrets}
    for bucket in boto3.resource("s3").buckets.all():
        found.add(("bucket", bucket.name))
        found |= {("object", bucket.name, each.key, each.id) for each in bucket.object_versions.all()}
    events = boto3.client("events")
    for bus in events.list_event_buses()["EventBuses"]:
        found.add(("bus", bus["Name"]))
        found |= {("rule", bus["Name"], rule["Name"]) for rule in events.list_rules(EventBusName=bus["Name"])["Rules"]}
    return found


class ChangingTables:
    """DynamoDB's answers while a table is being changed: moto's tables are always ACTIVE."""

    def __init__(self, events, changing=()):
        self.left = dict.fromkeys(changing, 3)
        events.register("provide-client-params.dynamodb.*", self.refuse)
        events.register("after-call.dynamodb.UpdateTable", self.updated)
        events.register("after-call.dynamodb.DescribeTable", self.described)

    def refuse(self, params, model, **_):
        if model.name in ("UpdateTable", "DeleteTable") and self.left.get(params["TableName"]):
            error = {"Code": "ResourceInUseException", "Message": "Attempt to change a resource which is still in use"}
            raise ClientError({"Error": error}, model.name)

    def updated(self, parsed, http_response, **_):
        if http_response.status_code == 200:
            self.left[parsed["TableDescription"]["TableName"]] = 2

    def described(self, parsed, **_):
        table = parsed.get("Table")
        if table and self.left.get(table["TableName"]):
            self.left[table["TableName"]] -= 1
            table["TableStatus"] = "UPDATING"


def refuse_buckets_with_versions(params, **_):
    """S3 deletes no bucket that has objects, earlier versions of them or delete markers; moto deletes one without objects."""
    bucket = s3_backends["123456789012"]["aws"].buckets.get(params["Bucket"])
    if bucket and list(bucket.keys.values()):
        error = {"Code": "BucketNotEmpty", "Message": "You must delete all versions in the bucket."}
        raise ClientError({"Error": error}, "DeleteBucket")


def refuse_buses_with_rules(params, model, **_):
    """EventBridge deletes no bus that has rules, and CloudFormation no stack with such a bus; moto deletes both."""
    name = params["Name"] if model.name == "DeleteEventBus" else params["StackName"].split("/")[-2]
    bus = events_backends["123456789012"]["us-east-1"].event_buses.get(name)
    if bus and bus.rules:
        raise ClientError({"Error": {"Code": "ValidationException", "Message": "The bus has rules."}}, model.name)


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


class Calls:
    """Counts the calls to AWS, and raises an error before or after one of them."""

    def __init__(self, events, where=None, number=None, error=None):
        self.made = 0
        self.where, self.number, self.error = where, number, error
        events.register("before-call", self.before)
        events.register("after-call", self.after)

    def before(self, **_):
        self.made += 1
        self.fail_at("before")

    def after(self, **_):
        self.fail_at("after")

    def fail_at(self, where):
        if (where, self.made) == (self.where, self.number):
            raise self.error


# Reads the descriptions of the services once.
LOADER = botocore.loaders.create_loader()


class Session(boto3.Session):
    """Creates each client once: that takes longer than a call. A new session has none of the handlers of another."""

    def __init__(self):
        session = botocore.session.get_session()
        session.register_component("data_loader", LOADER)
        super().__init__(botocore_session=session)
        self.client = functools.cache(self.client)
        self.resource = functools.cache(self.resource)


def run_cleanup(register=lambda events: None, created=False):
    """The exit status, or the interruption; and what was printed."""
    session, printed = Session(), io.StringIO()
    session.events.register("provide-client-params.s3.DeleteBucket", refuse_buckets_with_versions)
    for call in ("cloudformation.DeleteStack", "events.DeleteEventBus"):
        session.events.register(f"provide-client-params.{call}", refuse_buses_with_rules)
    register(session.events)
    with mock.patch.object(boto3, "DEFAULT_SESSION", session):
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                return cleanup.main(RUN, created), printed.getvalue()
        except Interrupted as error:
            return error, printed.getvalue()


def changing_tables(events):
    return ChangingTables(events, [found[1] for found in everything() if found[0] == "table"])


class MotoTest(unittest.TestCase):
    names = OTHERS

    def setUp(self):
        self.enterContext(mock.patch.dict("os.environ", {"AWS_DEFAULT_REGION": "us-east-1"}))
        self.enterContext(mock.patch("botocore.waiter.time.sleep", new=lambda seconds: None))
        # moto's CloudFormation does not name a stack's bus.
        self.enterContext(mock.patch.object(EventBus, "physical_resource_id", property(lambda bus: bus.name), create=True))
        self.enterContext(mock_aws())
        self.enterContext(mock.patch.object(boto3, "DEFAULT_SESSION", Session()))
        create_others(self.names)
        self.others = everything()

    def assert_only_others(self):
        self.assertEqual(everything() ^ self.others, set())


class CleanupTest(MotoTest):
    def test_nothing_of_a_run_is_left_and_nothing_else_is_touched(self):
        create_run()
        self.assertEqual(run_cleanup(ChangingTables)[0], 0)
        self.assert_only_others()
        self.assertEqual(run_cleanup()[0], 0, "again")
        self.assert_only_others()

    def test_stacks_of_agents_are_deleted_before_the_main_stack(self):
        create_run()
        deleted = [line for line in run_cleanup()[1].splitlines() if ":stack/" in line]
        self.assertEqual(len(deleted), 4)
        self.assertIn(f":stack/{RUN}/", deleted[-1])

    def test_tables_that_are_being_changed_are_waited_for(self):
        create_run()
        self.assertEqual(run_cleanup(changing_tables)[0], 0)
        self.assert_only_others()

    def test_left_overs_are_found_when_the_stacks_are_gone(self):
        create_run()
        cloudformation = boto3.client("cloudformation")
        boto3.client("events").delete_rule(Name="trigger", EventBusName=RUN)
        for stack in (f"{RUN}-courier", f"{RUN}-checked", f"{RUN}-archive", RUN):
            cloudformation.delete_stack(StackName=stack)
        self.assertEqual(sum(RUN + "-TasksTable" in str(each) for each in everything() - self.others), 1)
        self.assertEqual(run_cleanup()[0], 0)
        self.assert_only_others()

    def test_a_run_that_was_interrupted_before_its_stack_existed_is_deleted(self):
        create_outside_of_stacks(RUN, RUN)
        self.assertEqual(run_cleanup()[0], 0)
        self.assert_only_others()

    def test_a_stack_that_verify_did_not_create_is_left_alone(self):
        deploy(RUN, None)
        create_outside_of_stacks(RUN, None)
        self.others = everything()
        self.assertEqual(run_cleanup()[0], 0)
        self.assert_only_others()
        # After a run of verify this is its own stack, which it would leave.
        status, printed = run_cleanup(created=True)
        self.assertEqual(status, 1)
        self.assertIn("it lacks the tag", printed)
        self.assert_only_others()

    def test_objects_that_s3_refuses_to_delete_are_a_failure(self):
        def refuse(parsed, **_):
            parsed["Errors"] = [{"Key": "1", "Code": "AccessDenied", "Message": "not now"}]

        create_run(TABLES[:1], [])
        status, printed = run_cleanup(lambda events: events.register("after-call.s3.DeleteObjects", refuse))
        self.assertEqual((status, printed.count("AccessDenied")), (1, 2), "the bucket and the uploads")
        self.assertEqual(run_cleanup()[0], 0)

    def test_a_resource_with_another_tag_is_left_alone_whatever_is_listed(self):
        table = next(name for kind, name, *_ in self.others if kind == "table")
        foreign = {"ResourceARN": f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}", "Tags": tags("steward")}

        def add(parsed, **_):
            parsed["ResourceTagMappingList"].append(foreign)

        create_run()
        register = "after-call.resourcegroupstaggingapi.GetResources"
        self.assertEqual(run_cleanup(lambda events: events.register(register, add))[0], 0)
        self.assert_only_others()

    def test_resources_that_are_listed_after_their_deletion_are_no_failure(self):
        gone = [
            "arn:aws:dynamodb:us-east-1:123456789012:table/gone", "arn:aws:s3:::gone", "arn:aws:sqs:us-east-1:123456789012:gone",
            "arn:aws:secretsmanager:us-east-1:123456789012:secret:gone-abcdef", "arn:aws:events:us-east-1:123456789012:event-bus/gone",
            # CloudFormation deletes these with the stack.
            "arn:aws:lambda:us-east-1:123456789012:function:gone", "arn:aws:dynamodb:us-east-1:123456789012:backup/gone",
        ]

        def add(parsed, **_):
            parsed["ResourceTagMappingList"] += [{"ResourceARN": arn, "Tags": tags(RUN)} for arn in gone]

        register = "after-call.resourcegroupstaggingapi.GetResources"
        status, printed = run_cleanup(lambda events: events.register(register, add))
        self.assertEqual((status, "NOT" in printed), (0, False), printed)
        self.assert_only_others()

    def test_all_that_outlives_a_stack_is_of_a_kind_that_is_deleted(self):
        kinds = set()
        for path in [ROOT / "template.yaml", *(ROOT / "infra").glob("*.yaml")]:
            resources = yaml.compose(path.read_text()).value
            resources = next((value.value for key, value in resources if key.value == "Resources"), [])
            for _, resource in resources:
                fields = {key.value: value.value for key, value in resource.value}
                if fields.get("DeletionPolicy", "Delete") != "Delete" and path.name != "deployment-role.yaml":
                    kinds.add(fields["Type"])
        self.assertEqual(kinds, {"AWS::DynamoDB::Table", "AWS::S3::Bucket"})


class InterruptedCleanupTest(MotoTest):
    """Each call of a cleanup is interrupted or fails; the next cleanup deletes what is left."""

    names = OTHERS[:1]

    def repeat_after_a_failure_at_each_call(self, where, error):
        number = 0
        while True:
            number += 1
            create_run(TABLES[:1], ["courier"])
            calls = []
            first, printed = run_cleanup(lambda events: calls.append(Calls(events, where, number, error)))
            if first == 0:
                self.assert_only_others()
            if calls[0].made < number:
                break
            self.assertEqual(run_cleanup()[0], 0, f"after call {number}: {printed}")
            self.assert_only_others()
        self.assertEqual(first, 0)
        self.assertGreater(number, 25)

    def test_interrupted_before_each_call(self):
        self.repeat_after_a_failure_at_each_call("before", Interrupted())

    def test_interrupted_after_each_call(self):
        self.repeat_after_a_failure_at_each_call("after", Interrupted())

    def test_each_call_fails(self):
        error = {"Code": "AccessDeniedException", "Message": "not now"}
        self.repeat_after_a_failure_at_each_call("before", ClientError({"Error": error}, "Any"))

    def test_each_call_does_not_reach_aws(self):
        self.repeat_after_a_failure_at_each_call("before", EndpointConnectionError(endpoint_url="https://aws.example"))


if __name__ == "__main__":
    unittest.main()
