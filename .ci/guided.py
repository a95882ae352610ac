"""This script checks that `sam deploy --guided`, answered with Enter, deploys `template.yaml`, and that it finds no function without
authentication in any of the templates given. Called by `lint-template`.

The SAM CLI itself asks: the questions end where it would look for its bucket, before it calls AWS.
"""

import sys
from unittest.mock import patch

from click import Abort
from click.testing import CliRunner
from samcli.cli.main import cli
from samcli.commands.deploy import guided_context
from samcli.commands.deploy.auth_utils import auth_per_resource
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider


def unauthenticated(template):
    stacks, _ = SamLocalStackProvider.get_stacks(template)
    return [resource for resource, is_authenticated in auth_per_resource(stacks) if not is_authenticated]


findings = [
    f"{template}: `sam deploy --guided` asks about {', '.join(resources)}, and Enter ends it"
    for template in sys.argv[1:] if (resources := unauthenticated(template))
]
with patch.object(guided_context, "manage_stack", side_effect=Abort) as looks_for_its_bucket:
    # More than it asks. A question that Enter does not answer is asked until there are no more.
    guided = CliRunner().invoke(cli, ["deploy", "--guided", "--template-file", "template.yaml"], input="\n" * 100)
if not looks_for_its_bucket.called:
    findings.append(f"sam deploy --guided, answered with Enter:\n{guided.output}")
sys.exit("\n".join(findings) or None)
