"""Starts LocalStack with ten things mended; called by `localstack`."""

import atexit
import logging
import os
import shutil
import threading
from collections import defaultdict
from functools import partial

from botocore.config import Config
from function_processes import ProcessRuntimeExecutor
from localstack import config
from localstack.aws.accounts import get_account_id_from_access_key_id
from localstack.aws.api import CommonServiceException
from localstack.aws.api.dynamodb import DynamodbApi
from localstack.aws.forwarder import ForwardingFallbackDispatcher
from localstack.runtime.main import main
from localstack.services.cloudformation import resource_provider
from localstack.services.cloudformation.engine.v2.change_set_model_preproc import ChangeSetModelPreproc, PreprocResource
from localstack.services.lambda_ import provider, urlrouter
from localstack.services.lambda_.event_source_mapping.pollers.sqs_poller import SqsPoller
from localstack.services.lambda_.invocation import execution_environment, version_manager
from localstack.services.moto import dispatch_to_moto
from localstack.services.plugins import SERVICE_PLUGINS, Service
from localstack.utils.aws.request_context import extract_access_key_id_from_auth_header
from twisted.internet import endpoints

# Nothing is kept.
atexit.register(shutil.rmtree, os.environ["FILESYSTEM_ROOT"], ignore_errors=True)

# Nobody but this machine is served: whatever GATEWAY_LISTEN says, LocalStack listens on all addresses.
endpoints.TCP4ServerEndpoint = partial(endpoints.TCP4ServerEndpoint, interface="127.0.0.1")

# Functions are processes of this machine, not containers.
for module in (provider, execution_environment, version_manager):
    module.get_runtime_executor = lambda: ProcessRuntimeExecutor

# DynamoDB is moto's, in this process. LocalStack would start Amazon's DynamoDB Local, whose licence asks for an
# AWS account. Moto is not thread-safe, so it handles one request after the other. Its parser of PartiQL does not
# know what Steward writes: as an engine without PartiQL it is sound.
moto_lock = threading.Lock()


class DynamoDB(DynamodbApi):
    def batch_execute_statement(self, *_, **__):
        raise CommonServiceException("UnknownOperationException", "no PartiQL here")


def one_at_a_time(context, _request):
    with moto_lock:
        return dispatch_to_moto(context)


SERVICE_PLUGINS.add_service(
    Service.for_provider(
        DynamoDB(), dispatch_table_factory=lambda api: ForwardingFallbackDispatcher(api, one_at_a_time)
    )
)

# A queue has up to five invocations of its function at once, with which AWS begins. LocalStack waits for each.
slots = defaultdict(lambda: threading.Semaphore(5))
handle_messages = SqsPoller.handle_messages


def handle_side_by_side(self, messages):
    slot = slots[self.source_arn]
    slot.acquire()

    def handle():
        try:
            handle_messages(self, messages)
        except Exception as error:
            logging.warning("a batch of %s failed, and will be delivered again: %s", self.source_arn, error)
        finally:
            slot.release()

    threading.Thread(target=handle, daemon=True).start()


SqsPoller.handle_messages = handle_side_by_side

# A function's log goes to the group that the template names.
environment = execution_environment.ExecutionEnvironment
environment.get_log_group_name = lambda self: self.function_version.config.logging_config["LogGroup"]

# A function URL is a path of the gateway: its own host name, ID.lambda-url.REGION.localhost, does not resolve
# everywhere.
URLS = "/_aws/lambda-url/"
url_config, register_routes = provider.FunctionUrlConfig, urlrouter.FunctionUrlRouter.register_routes


def url_config_with_path(**fields):
    fields["url"] = f"http://127.0.0.1:{config.GATEWAY_LISTEN[0].port}{URLS}{fields['url_id']}/"
    return url_config(**fields)


def register_paths(self):
    register_routes(self)

    def handle(request, region, api_id, path=""):
        return self.handle_lambda_url_invocation(request, api_id, region)

    for rest in ("", "<path:path>"):
        path = f"{URLS}<api_id>/{rest}"
        self.router.add(path, endpoint=handle, defaults={"region": "us-east-1"})


provider.FunctionUrlConfig = url_config_with_path
urlrouter.FunctionUrlRouter.register_routes = register_paths

# It tells the function who is calling, as the request says: LocalStack checks no signature.
event_of_url = urlrouter.event_for_lambda_url


def event_with_caller(api_id, request):
    event = event_of_url(api_id, request)
    path = event["rawPath"].removeprefix(f"{URLS}{api_id}")
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    if key := extract_access_key_id_from_auth_header(request.headers):
        account = get_account_id_from_access_key_id(key)
        event["requestContext"]["authorizer"] = {"iam": {"userArn": f"arn:aws:iam::{account}:root"}}
    return event


urlrouter.event_for_lambda_url = event_with_caller

# A stack with a parameter that is a list can be deleted: the list was split for what is deployed, not for what was.
visit_parameter = ChangeSetModelPreproc.visit_node_parameter


def visit_parameter_and_split(self, parameter):
    delta = visit_parameter(self, parameter)
    if self.visit(parameter.type_).before == "CommaDelimitedList" and isinstance(delta.before, str):
        delta.before = [item.strip() for item in delta.before.split(",")]
    return delta


ChangeSetModelPreproc.visit_node_parameter = visit_parameter_and_split

# What is RetainExceptOnCreate stays when its stack is deleted.
make_resource = PreprocResource.__init__


def make_resource_retained(self, *arguments, deletion_policy=None, **options):
    policy = "Retain" if deletion_policy == "RetainExceptOnCreate" else deletion_policy
    make_resource(self, *arguments, deletion_policy=policy, **options)


PreprocResource.__init__ = make_resource_retained

# CloudFormation waits as long as a busy machine needs. Without this, it repeats a request after 60 seconds. If that is the
# creation of a function, and the first request succeeds after all, the second one finds that the function exists, and
# the stack fails.
factory = resource_provider._cfn_resource_client_factory
factory._config = factory._config.merge(Config(read_timeout=600))

main()
