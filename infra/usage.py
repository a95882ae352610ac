"""What a stack has used since a time, by CloudWatch's counts, and what that costs at list prices.

    usage.py STACK SINCE            SINCE as 2026-11-22T12:00:00Z
    usage.py --delete-rest STACK    deletes what outlives a stack: its tables and the secrets of its test

An estimate: what it leaves out is said below. The bill itself can be had a day later, by the tag that CloudFormation gives
every resource: Cost Explorer, tag `aws:cloudformation:stack-name`, if the account has activated it for costs.
"""

import datetime
import sys
from pathlib import Path

import boto3
import yaml

PRICES = yaml.safe_load((Path(__file__).parent.parent / "crates/local/src/forecast/prices.yaml").read_text())

# The dimensions of a series that is about a whole resource: an index is beside its table.
RESOURCES = ({"TableName"}, {"TableName", "GlobalSecondaryIndexName"}, {"QueueName"}, {"FunctionName"})


def counted(cloudwatch, since, namespace, metric, prefix):
    """The sum of a metric over all its series with a dimension whose value begins so."""
    total = 0.0
    pages = cloudwatch.get_paginator("list_metrics").paginate(Namespace=namespace, MetricName=metric)
    for series in (series for page in pages for series in page["Metrics"]):
        names = {dimension["Name"] for dimension in series["Dimensions"]}
        if names not in RESOURCES or not any(each["Value"].startswith(prefix) for each in series["Dimensions"]):
            continue
        points = cloudwatch.get_metric_statistics(
            Namespace=namespace,
            MetricName=metric,
            Dimensions=series["Dimensions"],
            StartTime=since,
            EndTime=datetime.datetime.now(datetime.UTC),
            Period=60,
            Statistics=["Sum"],
        )
        total += sum(point["Sum"] for point in points["Datapoints"])
    return total


def report(stack, since):
    cloudwatch = boto3.client("cloudwatch")
    since = datetime.datetime.fromisoformat(since)

    def count(namespace, *metrics):
        return sum(counted(cloudwatch, since, f"AWS/{namespace}", metric, f"{stack}-") for metric in metrics)

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


def delete_rest(stack):
    dynamodb, secrets = boto3.client("dynamodb"), boto3.client("secretsmanager")
    tables = dynamodb.get_paginator("list_tables").paginate()
    for table in (name for page in tables for name in page["TableNames"] if name.startswith(f"{stack}-")):
        dynamodb.delete_table(TableName=table)
        print(f"deleted table {table}")
    for name in (f"{stack}-own", f"{stack}-foreign"):
        secrets.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
        print(f"deleted secret {name}")


if __name__ == "__main__":
    if sys.argv[1] == "--delete-rest":
        delete_rest(sys.argv[2])
    else:
        report(*sys.argv[1:])
