"""Translates a template to CloudFormation, with the translator that the deployment uses, and looks at what
its roles may do. Called by `lint-template`.

Since cfn-lint 1.54 neither it nor `sam validate --lint`, which calls it, looks inside a serverless function: a Ref to nothing in
its environment, a misspelt action in its policies and a circle of references all pass. And checkov does not
look for a role that may do something to everything.
"""

import json
import sys

from samcli.yamlhelper import yaml_parse
from samtranslator.model.exceptions import InvalidDocumentException
from samtranslator.translator.transform import transform


class NoManagedPolicies:
    """The translator asks AWS only for the policies that a template names by name."""

    def load(self):
        return {}


# X-Ray has no resources that a statement could name. Lambda needs the actions for network interfaces on all resources.
NAMELESS = {
    "xray:PutTraceSegments", "xray:PutTelemetryRecords",
    "ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
    # What the deployment role does: the first have a condition, the others have no resources.
    "lambda:CreateEventSourceMapping", "lambda:UpdateEventSourceMapping", "lambda:DeleteEventSourceMapping",
    "cloudwatch:DescribeAlarms", "ec2:DescribeSecurityGroups", "ec2:DescribeVpcs", "kms:ListAliases", "logs:DescribeIndexPolicies",
    "logs:DescribeLogGroups", "logs:DescribeResourcePolicies", "secretsmanager:GetRandomPassword",
}


def statements(role):
    """A role's statements, also those that depend on a condition."""
    for policy in role["Properties"].get("Policies", []):
        for statement in policy["PolicyDocument"]["Statement"]:
            yield from (part for part in statement.get("Fn::If", [statement]) if "Effect" in part)


def is_for_all(statement):
    """Whether it is for every resource of a kind that has names, or for every action."""
    if statement["Effect"] == "Deny":
        return False
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    return any("*" in action for action in actions) or (
        "*" in (statement["Resource"], *statement["Resource"]) and not NAMELESS.issuperset(actions))


with open(sys.argv[1], encoding="utf-8") as file:
    template = yaml_parse(file.read())
for resource in template["Resources"].values():
    if resource["Type"] == "AWS::Serverless::Function":
        # What `sam package` would put there.
        resource["Properties"]["CodeUri"] = "s3://bucket/key"
try:
    translated = transform(template, {}, NoManagedPolicies()) if "Transform" in template else template
except InvalidDocumentException as error:
    sys.exit("\n".join(cause.message for cause in error.causes))
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(translated, file, indent=2)
roles = {
    name: resource for name, resource in translated["Resources"].items()
    if resource["Type"] == "AWS::IAM::Role"
}
findings = [
    f"{name}: a statement is for everything: {statement}"
    for name, role in roles.items() for statement in statements(role) if is_for_all(statement)
]
# A managed policy cannot name this stack's resources: that of SQS is for every queue.
findings += [
    f"{name}: has managed policies: {role['Properties']['ManagedPolicyArns']}"
    for name, role in roles.items() if role["Properties"].get("ManagedPolicyArns")
]
sys.exit("\n".join(findings) or None)
