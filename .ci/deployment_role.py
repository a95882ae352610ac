"""Compares what CloudFormation calls for the resources of translated templates with the statements of infra/deployment-role.yaml.
Called by `lint-template`.

tests/template/registry.yaml has the calls of each resource type. Each must be allowed for the resource, with its name and the
condition keys of the request. Each permission of ExecutionRole must be needed too, so the comparison fails with any of its
actions removed; what PipelineRole allows beyond `sam deploy` is not judged. It supposes that every condition of a template
holds. What AWS does beyond these facts is not verified.

    deployment_role.py TRANSLATED…
"""

import json
import re
import sys
from importlib.resources import files
from pathlib import Path

from samcli.yamlhelper import yaml_parse

# As long as names may be: IAM limits the size of a policy.
REGION, ACCOUNT, STACKS = "ap-southeast-1", "123456789012", "orders-of-our-production1"
# Characters without white space, by IAM's quotas, with the longest partition.
LIMITS = {"ExecutionRole": 10240, "PipelineRole": 10240, "FunctionBoundary": 6144}
PSEUDO = {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com",
          "AWS::NoValue": None}
# An administrator deploys these.
NOT_BY_THE_PIPELINE = {"deployment-role.yaml", "domain.yaml"}
HANDLERS = ("create", "read", "update", "delete", "tags")
# The actions that IAM knows, by service and in lower case, and the types of resources of each.
IAM = json.loads((files("cfnlint.data.AdditionalSpecs") / "Policies.json").read_text())
# Actions of CloudFormation's registry that IAM does not know, so no policy can allow them: names of S3's operations and
# outdated names.
UNKNOWN_TO_IAM = {
    "kms:ReEncrypt", "s3:DeleteBucketAnalyticsConfiguration", "s3:DeleteBucketCors", "s3:DeleteBucketEncryption",
    "s3:DeleteBucketLifecycle", "s3:DeleteBucketMetricsConfiguration", "s3:DeleteBucketReplication", "s3:DeleteBucketTagging",
    "s3:GetObjectMetadata", "s3:PutBucketReplication", "s3:PutObjectLockConfiguration", "s3:REST.PUT.OBJECT",
}


def table():
    text = Path("tests/template/registry.yaml").read_text(encoding="utf-8")
    return yaml_parse(text.replace("REGION", REGION).replace("ACCOUNT", ACCOUNT).replace("STACKS", STACKS))


def listed(value):
    return value if isinstance(value, list) else [value]


def look_up(value, path):
    """The values at a path of properties, through lists."""
    found = [value]
    for part in path.split("."):
        found = [item.get(part) for each in found for item in listed(each) if isinstance(item, dict)]
    return [item for each in found for item in listed(each) if item is not None]


class Stack:
    """A template as a stack, in which every condition holds."""

    def __init__(self, template, name, parameters, types):
        self.name, self.types, self.resources = name, types, template["Resources"]
        self.values = {
            **{key: value.get("Default", f"some-{key}") for key, value in template.get("Parameters", {}).items()},
            **parameters, **PSEUDO, "AWS::StackName": name, "AWS::StackId": name,
        }

    def resolve(self, value):
        """A value without functions. A reference to a resource, and each of its attributes, is its ARN."""
        if isinstance(value, list):
            return [item for item in map(self.resolve, value) if item is not None]
        if not isinstance(value, dict):
            return value
        name, argument = next(iter(value.items()), (None, None))
        if name == "Ref":
            return self.values[argument] if argument in self.values else self.arns(argument)[0]
        if name == "Fn::GetAtt":
            return self.arns((argument if isinstance(argument, list) else argument.split("."))[0])[0]
        if name == "Fn::Sub":
            text, own = argument if isinstance(argument, list) else (argument, {})
            return re.sub(r"\$\{([^}]+)\}", lambda match: str(self.resolve(
                own[match[1]] if match[1] in own else {"Ref": match[1].split(".")[0]})), text)
        if name == "Fn::If":
            held = self.resolve(argument[1])
            return self.resolve(argument[2]) if held is None else held
        if name == "Fn::Join":
            return argument[0].join(map(str, listed(self.resolve(argument[1]))))
        if str(name).startswith("Fn::"):
            return f"some-{name}"
        return {key: self.resolve(item) for key, item in value.items()}

    def properties(self, logical):
        return self.resolve(self.resources[logical].get("Properties", {}))

    def fill(self, text, logical):
        """A text of the table for each value of the properties that it names."""
        match = re.search(r"\{([\w.]+)\}", text)
        if not match:
            return [text]
        given = match[1] in ("Artifacts", "ExecutionRole")
        values = [self.values[match[1]]] if given else look_up(self.properties(logical), match[1])
        return [filled for value in values for filled in self.fill(text.replace(match[0], str(value)), logical)]

    def arns(self, logical):
        kind = self.resources[logical]["Type"]
        text = self.types.get(kind, {}).get("arn", "arn:aws:other:::{Name}")
        # CloudFormation makes up a name if the template has none.
        stack = "" if kind == "AWS::SecretsManager::Secret" else f"{self.name}-"
        made_up = f"{stack}{logical}-1A2B3C4D5E6F"
        made_up = made_up.lower() if kind == "AWS::S3::Bucket" else made_up
        return self.fill(text, logical) or [re.sub(r"\{[\w.]+\}", made_up, text)]

    def calls(self, logical):
        """What CloudFormation calls for a resource: action, ARN and the condition keys of the request."""
        resource = self.resources[logical]
        facts = self.types[resource["Type"]]
        kept = {resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")} == {"Retain"}
        handlers = [name for name in HANDLERS if not (kept and name == "delete")]
        actions = {action for name in handlers for action in facts.get(name, [])}
        groups = facts.get("calls", [])
        plain = actions.difference(*(group["actions"] for group in groups))
        properties = self.properties(logical)
        tags = {"aws:ResourceTag/aws:cloudformation:stack-name": self.name,
                "aws:RequestTag/aws:cloudformation:stack-name": self.name} if facts["system_tags"] else {}
        for group in [{"actions": sorted(plain)}, *groups]:
            if "with" in group and not any(look_up(properties, path) for path in group["with"]):
                continue
            arns = self.fill(group["resource"], logical) or [group["resource"]] if "resource" in group else self.arns(logical)
            context = {key: value for key, text in group.get("context", {}).items() for value in self.fill(text, logical)}
            yield from ((action, arn, {**tags, **context}) for action in group["actions"] for arn in arns)


def matches(pattern, text):
    """As IAM compares: * and ? stand for any characters."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text) is not None


def holds(condition, context):
    """Whether a statement's condition is true. A key that the request does not have makes it false, or a negated one true."""
    compare = {"StringEquals": str.__eq__, "Bool": str.__eq__, "StringLike": matches, "ArnLike": matches}
    def is_true(operator, key, values):
        if operator == "StringNotEquals":
            return not is_true("StringEquals", key, values)
        return key in context and any(compare[operator](str(value), context[key]) for value in listed(values))
    return all(is_true(operator, key, values) for operator, keys in condition.items() for key, values in keys.items())


def granting(statements, action, arn, context):
    """The statement that allows a call, if no other denies it."""
    def is_about(statement):
        return (any(matches(name.lower(), action.lower()) for name in listed(statement["Action"]))
                and any(matches(resource, arn) for resource in listed(statement["Resource"]))
                and holds(statement.get("Condition", {}), context))
    about = [statement for statement in statements if is_about(statement)]
    denied = any(statement["Effect"] == "Deny" for statement in about)
    return None if denied else next(iter(about), None)


def refused(statements, calls, used):
    """Which calls no statement allows; `used` collects those that do."""
    for action, arn, context in calls:
        service, name = action.lower().split(":")
        known = IAM.get(service, {}).get("Actions", {}).get(name)
        if known is None:
            if action not in UNKNOWN_TO_IAM:
                yield f"{action}, which IAM does not know: correct it, or accept it in UNKNOWN_TO_IAM"
            continue
        arn = arn if known.get("Resources") else "*"
        statement = granting(statements, action, arn, context)
        if statement is None:
            yield f"{action} on {arn}"
        else:
            used.add((statement["Sid"], action.lower()))


def statements_of(role, name):
    """Those of its own policy, and of the managed policies attached to it."""
    [policy] = role.properties(name)["Policies"]
    attached = [role.properties(other)["PolicyDocument"] for other, resource in role.resources.items()
                if {"Ref": name} in resource.get("Properties", {}).get("Roles", [])]
    return [statement for document in [policy["PolicyDocument"], *attached] for statement in document["Statement"]]


def of_the_execution_role(role, paths):
    """What the execution role lacks for the translated templates, and what it allows without need."""
    parameters = {
        "Steward": STACKS, "Name": "payment", "TableKeyArn": role.values["TableKeyArn"],
        "PermissionsBoundaryArn": role.resolve({"Ref": "FunctionBoundary"}), "Artifacts": role.resolve({"Ref": "Artifacts"}),
        "ExecutionRole": role.arns("ExecutionRole")[0],
        "CollectorLayerArn": f"arn:aws:lambda:{REGION}:901920570463:layer:collector:1",
    }
    statements, used = statements_of(role, "ExecutionRole"), set()
    for path in map(Path, paths):
        if path.name in NOT_BY_THE_PIPELINE:
            continue
        stack = Stack(json.loads(path.read_text(encoding="utf-8")), STACKS, parameters, role.types)
        for logical, resource in stack.resources.items():
            if resource["Type"] not in role.types:
                yield f"{path}: {logical}: tests/template/registry.yaml has no {resource['Type']}"
                continue
            about = f"{path}: {logical} ({resource['Type']}, DeletionPolicy {resource.get('DeletionPolicy', 'Delete')})"
            for call in refused(statements, stack.calls(logical), used):
                yield f"{about}: ExecutionRole does not allow {call}"
    for statement in statements:
        for action in listed(statement["Action"]):
            if statement["Effect"] == "Allow" and (statement["Sid"], action.lower()) not in used:
                yield f"ExecutionRole: {statement['Sid']}: no resource needs {action}"


def of_the_pipeline_role(role):
    """What the pipeline's role lacks for `sam deploy`."""
    known = {name: role.arns(name)[0] for name in ("Artifacts", "ExecutionRole")}
    calls = [(action, arn.format(**known), group.get("context", {}))
             for group in role.types["sam deploy"] for action in group["actions"] for arn in group["resource"]]
    for call in refused(statements_of(role, "PipelineRole"), calls, set()):
        yield f"PipelineRole does not allow {call}, which `sam deploy` needs"


def too_large(role):
    for name, limit in LIMITS.items():
        properties = role.properties(name)
        documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [properties])]
        texts = [json.dumps(document, separators=(",", ":")) for document in documents]
        size = sum(len(text.replace("arn:aws:", "arn:aws-us-gov:")) for text in texts)
        if size > limit:
            yield f"{name}: {size} characters, and IAM's limit is {limit}"


def main(paths):
    template = yaml_parse(Path("infra/deployment-role.yaml").read_text(encoding="utf-8"))
    parameters = {"Stacks": STACKS, "TableKeyArn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"}
    role = Stack(template, "steward-pipeline", parameters, table())
    findings = [*of_the_execution_role(role, paths), *of_the_pipeline_role(role), *too_large(role)]
    sys.exit("\n".join(findings) or None)


main(sys.argv[1:])
