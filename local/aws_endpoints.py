"""Chooses the AWS endpoint of each service, makes clients for them, and reads the signer of a request.

The SDK's own variables choose (AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_<SERVICE>); a service without one uses the
embedded AWS. Invariants: requests go only to addresses of the user's environment or of the embedded AWS; the user's AWS
profiles are never read.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from botocore.utils import is_valid_endpoint_url

from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from local.template import REGION
from local.terminal import UserError

if TYPE_CHECKING:
    from starlette.requests import Request

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
_VARIABLE = re.compile(r"AWS_ENDPOINT_URL(_[A-Z0-9_]+)?")
# boto3's name for the service of table streams.
STREAMS = "dynamodbstreams"
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# How the variables spell a service. Source: AWS SDKs reference guide, "Service-specific endpoints".
_VARIABLE_ENDINGS = {
    "dynamodb": "DYNAMODB",
    "sqs": "SQS",
    "secretsmanager": "SECRETS_MANAGER",
    "sns": "SNS",
    "s3": "S3",
    STREAMS: "DYNAMODB_STREAMS",
}
_REACH_WITHIN_S = 3
# The id and the secret with which the run signs, unless the environment leads to another AWS.
OWN_KEYS = ("local", "local")
_CONNECT_S, _READ_S, _TRIES = 2, 10, 4
CONFIG = Config(
    connect_timeout=_CONNECT_S, read_timeout=_READ_S, retries={"mode": "standard", "total_max_attempts": _TRIES}
)


class Endpoints:
    """The endpoints of one run.

    `embedded` is the address of the embedded AWS, `dynamodb` that of the embedded DynamoDB; None if one is not started.
    """

    def __init__(self, environment: Mapping[str, str], embedded: str | None, dynamodb: str | None = None) -> None:
        self._variables = endpoint_variables(environment)
        self._credentials = {name: environment[name] for name in _CREDENTIALS if name in environment}
        if not self._variables or "AWS_ACCESS_KEY_ID" not in self._credentials:
            self._credentials = dict(zip(_CREDENTIALS, OWN_KEYS, strict=False))
        self._embedded = embedded
        self._dynamodb = dynamodb
        self._lock = threading.Lock()
        self._session: botocore.session.Session | None = None
        self._clients: dict[str, Any] = {}
        self._table_client: DynamoDb | None = None

    def url_of(self, service: str) -> str:
        """Returns the endpoint of a service; `service` is boto3's name."""
        spelled = _VARIABLE_ENDINGS.get(service, service.upper().replace("-", "_"))
        if service == STREAMS and f"AWS_ENDPOINT_URL_{spelled}" not in self._variables:
            return self.url_of("dynamodb")  # what serves the tables serves their streams
        chosen_url = self._variables.get(f"AWS_ENDPOINT_URL_{spelled}") or self._variables.get("AWS_ENDPOINT_URL")
        embedded = self._dynamodb if service == "dynamodb" and self._dynamodb else self._embedded
        return (chosen_url or embedded or "").rstrip("/")

    def environment(self) -> dict[str, str]:
        """Returns the variables that send a function's SDK to the same endpoints."""
        embedded = {"AWS_ENDPOINT_URL": self._embedded} if self._embedded else {}
        if self._dynamodb:
            embedded["AWS_ENDPOINT_URL_DYNAMODB"] = self._dynamodb
        # The user's AWS profiles are never read, and there is no metadata service.
        aside = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null"}
        aside["AWS_SHARED_CREDENTIALS_FILE"] = "/dev/null"
        return embedded | self._variables | self._credentials | aside

    @property
    def key_pair(self) -> tuple[str, str]:
        """The id of the access key and the secret with which everything here signs."""
        return self._credentials["AWS_ACCESS_KEY_ID"], self._credentials.get("AWS_SECRET_ACCESS_KEY", "")

    def client(self, service: str) -> Any:
        """Returns the botocore client of a service, which is made once; any thread may use it."""
        with self._lock:
            if service not in self._clients:
                if self._session is None:
                    self._session = plain_session()
                self._clients[service] = self._session.create_client(
                    service,
                    region_name=REGION,
                    endpoint_url=self.url_of(service),
                    aws_access_key_id=self._credentials["AWS_ACCESS_KEY_ID"],
                    aws_secret_access_key=self._credentials.get("AWS_SECRET_ACCESS_KEY", ""),
                    aws_session_token=self._credentials.get("AWS_SESSION_TOKEN"),
                    config=CONFIG,
                )
            return self._clients[service]

    def table_client(self) -> DynamoDb:
        """Returns the small client of DynamoDB, for what reads tables all the time: botocore's takes thrice the CPU."""
        with self._lock:
            if self._table_client is None:
                signer = Signer(Credentials(*self.key_pair, self._credentials.get("AWS_SESSION_TOKEN", "")), REGION)
                self._table_client = DynamoDb(
                    self.url_of("dynamodb"), signer, tries=_TRIES, connect_timeout_s=_CONNECT_S, read_timeout_s=_READ_S
                )
            return self._table_client


def endpoint_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the endpoint variables that are set and not empty; raises UserError if one is not a URL."""
    variables = {name: value for name, value in environment.items() if _VARIABLE.fullmatch(name) and value}
    for name in sorted(variables):
        if not is_origin(variables[name]):
            raise UserError(f"{name} must be the URL of an endpoint, such as http://127.0.0.1:8000.")
    return variables


def is_origin(text: str) -> bool:
    """Returns whether it is the URL of an HTTP endpoint, without a user and a query."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not is_valid_endpoint_url(text):
        return False
    return port != 0 and not (parts.query or parts.fragment or parts.username or parts.password)


def check_endpoint_variables(environment: Mapping[str, str], ports: Iterable[int]) -> None:
    """Raises UserError for an endpoint variable that leads to this service's own `ports`, or to no listener.

    A shell often has one left over from an earlier command, and with it the service would call itself.
    """
    own = set(ports)
    for name, url in sorted(endpoint_variables(environment).items()):
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        unset = f"`unset {name}` and start again"
        if port in own and _is_this_machine(host):
            raise UserError(f"{name} is {url}, an address of this service itself: {unset}.")
        try:
            socket.create_connection((host, port), timeout=_REACH_WITHIN_S).close()
        except OSError as problem:
            reason = problem.strerror or "no answer"
            raise UserError(f"{name} is {url}, and nothing can be reached there ({reason}): {unset}.") from None


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback or not int(ipaddress.ip_address(host))
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def needs_embedded(environment: Mapping[str, str]) -> bool:
    """Returns whether any service uses the embedded AWS."""
    return "AWS_ENDPOINT_URL" not in endpoint_variables(environment)


def needs_dynamodb(environment: Mapping[str, str]) -> bool:
    """Returns whether this machine must serve the tables."""
    return needs_embedded(environment) and "AWS_ENDPOINT_URL_DYNAMODB" not in endpoint_variables(environment)


def plain_session() -> botocore.session.Session:
    """Returns a session that reads no AWS profile and none of the user's files."""
    variables = {
        "profile": (None, None, None, None),
        "config_file": (None, None, "/dev/null", None),
        "credentials_file": (None, None, "/dev/null", None),
    }
    session = botocore.session.Session(session_vars=variables)
    session.register_component("data_loader", _loader())
    return session


@cache
def _loader() -> Loader:
    """botocore's data of services and regions, some ten megabytes of JSON, read once for all sessions."""
    return create_loader()


class Credential(NamedTuple):
    """The scope in which a request is signed; "" for what it does not say."""

    key: str = ""
    region: str = ""
    service: str = ""


def credential_of(request: "Request") -> Credential:
    """Returns the credential of a request, unchecked.

    Source: "Create a signed AWS API request": Credential=<access key id>/<day>/<region>/<service>/aws4_request.
    """
    written = request.headers.get("authorization", "").partition("Credential=")[2].partition(",")[0]
    match (written or request.query_params.get("X-Amz-Credential", "")).split("/"):
        case [key, _, region, service, *_]:
            return Credential(key, region if _REGION.fullmatch(region) else "", service)
    return Credential()
