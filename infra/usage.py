"""What a stack has used in the last hours, by CloudWatch's counts, and what that costs at list prices.

    usage.py STACK             the last three hours: an estimate, because CloudWatch may lack the last minutes; what else is
                               left out is said below
    usage.py STACK --billed    the last thirty days as billed, by service: a request to Cost Explorer, for a cent

What was billed is found by the tag `steward:stack`, which samconfig.toml and infra/deploy give to all resources of a deployment and
of its agents. CloudFormation's own tags are not on queues and tables. An administrator activates the tag once, under Billing, Cost
allocation tags; it counts from a day later on.
"""

import collections
import datetime
import os
import sys
from pathlib import Path

import boto3
import yaml

# As the other tools do; boto3 itself reads only AWS_DEFAULT_REGION.
if region := os.environ.get("AWS_REGION"):
    boto3.setup_default_session(region_name=region)

PRICES = yaml.safe_load((Path(__file__).parent.parent / "crates/forecast/src/cost/prices.yaml").read_text())
HOURS = 3
TAG = "steward:stack"

# The dimension that names a resource, by the resource's type.
DIMENSIONS = {"AWS::DynamoDB::Table": "TableName", "AWS::SQS::Queue": "QueueName", "AWS::Lambda::Function": "FunctionName"}
INDICES = ("due", "ended")


def resources(stack):
    """The type and physical name of each resource of a stack and of those nested in it."""
    pages = boto3.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
    for resource in (resource for page in pages for resource in page["StackResourceSummaries"]):
        name = resource.get("PhysicalResourceId")
        yield resource["ResourceType"], name
        if name and resource["ResourceType"] == "AWS::CloudFormation::Stack":
            yield from resources(name)


def series(stack):
    """The dimensions of every table, index, queue and function of a stack, by the service's namespace."""
    for kind, name in resources(stack):
        if kind not in DIMENSIONS or not name:
            continue
        namespace = "AWS/" + kind.split("::")[1]
        # A queue goes by its URL.
        resource = {"Name": DIMENSIONS[kind], "Value": name.rsplit("/", 1)[-1]}
        yield namespace, [resource]
        if kind == "AWS::DynamoDB::Table":
            for index in INDICES:
                yield namespace, [resource, {"Name": "GlobalSecondaryIndexName", "Value": index}]


def report(stack):
    cloudwatch = boto3.client("cloudwatch")
    now = datetime.datetime.now(datetime.UTC)
    every = list(series(stack))

    def count(namespace, *metrics):
        total = 0.0
        for dimensions in (dimensions for service, dimensions in every if service == f"AWS/{namespace}"):
            for metric in metrics:
                points = cloudwatch.get_metric_statistics(
                    Namespace=f"AWS/{namespace}",
                    MetricName=metric,
                    Dimensions=dimensions,
                    StartTime=now - datetime.timedelta(hours=HOURS),
                    EndTime=now,
                    Period=300,
                    Statistics=["Sum"],
                )
                total += sum(point["Sum"] for point in points["Datapoints"])
        return total

    memory_gb = 256 / 1024
    used = {
        "dynamodb_write_units": count("DynamoDB", "ConsumedWriteCapacityUnits"),
        "dynamodb_read_units": count("DynamoDB", "ConsumedReadCapacityUnits"),
        "sqs_requests": count(
            "SQS", "NumberOfMessagesSent", "NumberOfMessagesReceived", "NumberOfMessagesDeleted", "NumberOfEmptyReceives"
        ),
        "lambda_invocations": count("Lambda", "Invocations"),
        "lambda_gb_seconds": count("Lambda", "Duration") / 1000 * memory_gb,
    }
    bill = 0.0
    for name, amount in used.items():
        price = PRICES[name]
        dollars = amount * price["dollars"] / price["per"]
        bill += dollars
        print(f"{name:24} {amount:12,.0f}  ${dollars:.4f}")
    print(f"{'together':24} {'':12}  ${bill:.4f}: without events, logs, alarms, traces and transfer; batches count as their messages")


def bill(stack):
    """Prints what the resources with the tag were billed in the last thirty days, by service."""
    today = datetime.datetime.now(datetime.UTC).date()
    answer = boto3.client("ce").get_cost_and_usage(
        TimePeriod={"Start": str(today - datetime.timedelta(days=30)), "End": str(today)},
        Granularity="MONTHLY",
        Metrics=["UnblendedCost"],
        Filter={"Tags": {"Key": TAG, "Values": [stack]}},
        GroupBy=[{"Type": "DIMENSION", "Key": "SERVICE"}],
    )
    services = collections.Counter()
    for group in (group for month in answer["ResultsByTime"] for group in month["Groups"]):
        services[group["Keys"][0]] += float(group["Metrics"]["UnblendedCost"]["Amount"])
    for service, dollars in services.most_common():
        print(f"{service:44} ${dollars:.2f}")
    print(f"{'together':44} ${services.total():.2f}: without what has no tag, such as traces")


if __name__ == "__main__":
    if sys.argv[2:] == ["--billed"]:
        bill(sys.argv[1])
    else:
        report(sys.argv[1])
