"""What a stack has used in the last hours, by CloudWatch's counts, and what that costs at list prices.

    usage.py STACK

An estimate: CloudWatch may lack the last minutes, and what else is left out is said below. The bill itself can be had a day
later, by the tag that CloudFormation gives every resource: Cost Explorer, tag `aws:cloudformation:stack-name`, if the account has
activated it for costs.
"""

import datetime
import sys
from pathlib import Path

import boto3
import yaml

from cleanup import resources

PRICES = yaml.safe_load((Path(__file__).parent.parent / "crates/forecast/src/cost/prices.yaml").read_text())
HOURS = 3

# The dimension that names a resource, by the resource's type.
DIMENSIONS = {"AWS::DynamoDB::Table": "TableName", "AWS::SQS::Queue": "QueueName", "AWS::Lambda::Function": "FunctionName"}
INDICES = ("due", "ended")


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


if __name__ == "__main__":
    report(sys.argv[1])
