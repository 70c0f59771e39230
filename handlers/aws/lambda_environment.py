"""Lambda's context of a function, the access to AWS that the function's environment has, and the AWS clients:
DynamoDB's is made at the cold start, every other one at its first use.

DynamoDB, the dead-letter queue, the bucket and Lambda get small clients if the environment has everything that these
need, as in a function; otherwise boto3's. boto3 is imported when one of its clients is made: the import takes 20 MB,
and longer than the rest of a cold start, or than many requests.
"""

import re
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.values import dataclass

# The regions whose endpoints are dynamodb.<region>.amazonaws.com.
_REGION = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us|us-gov)-[a-z]+-[0-9]")
# The domain of the other partitions' endpoints by the beginning of their regions' names, as in botocore's
# partitions.json; connections.asl.yml has the same by partition.
_SUFFIXES = {
    "cn": "amazonaws.com.cn",
    "eusc-de": "amazonaws.eu",
    "us-iso": "c2s.ic.gov",
    "us-isob": "sc2s.sgov.gov",
    "us-isof": "csp.hci.ic.gov",
    "eu-isoe": "cloud.adc-e.uk",
}
# Variables of the SDK's that change where a request goes or what it trusts.
_NOT_PLAIN = (
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
    *("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"),
)


def dns_suffix(region: str) -> str:
    """Returns the domain of AWS's endpoints in a region."""
    return _SUFFIXES.get("-".join(region.split("-")[:-2]), "amazonaws.com")


def now_ms() -> int:
    """Returns the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class LambdaContext(Protocol):
    """The part of Lambda's context object that every function uses."""

    aws_request_id: str


class TimedContext(LambdaContext, Protocol):
    """The part of Lambda's context object that a function with a deadline uses."""

    def get_remaining_time_in_millis(self) -> int:
        """Returns the time that is left until the function is killed."""


@dataclass(frozen=True, slots=True)
class PlainAws:
    """The region, addresses and credentials for requests to DynamoDB, S3, SQS or Lambda.

    `s3_url` is the address that PlainS3 uses. `lambda_url` is "" if botocore must find the address.
    """

    region: str
    dynamodb_url: str
    credentials: Credentials
    s3_url: str = ""
    sqs_url: str = ""
    lambda_url: str = ""

    def signer(self, service: str) -> Signer:
        """Returns the signer of requests to a service in the region."""
        return Signer(self.credentials, self.region, service)


def plain_aws(environment: Mapping[str, str]) -> PlainAws | None:
    """Returns the access for plain requests to DynamoDB, S3 and SQS; None if only botocore can make them.

    Only botocore can make them without credentials in the environment (profiles, containers, single sign-on) or in a
    partition with other endpoints. The same holds if a variable requests FIPS, dual stack, a proxy or other
    certificates.
    """
    if any(environment.get(name) for name in _NOT_PLAIN):
        return None
    region = environment.get("AWS_DEFAULT_REGION") or environment.get("AWS_REGION") or ""
    is_usual = _REGION.fullmatch(region) is not None
    hosts = (("DYNAMODB", "dynamodb"), ("S3", "{bucket}.s3"), ("SQS", "sqs"), ("LAMBDA", "lambda"))
    dynamodb_url, s3_url, sqs_url, lambda_url = (
        environment.get(f"AWS_ENDPOINT_URL_{service}")
        or environment.get("AWS_ENDPOINT_URL")
        or (f"https://{host}.{region}.{dns_suffix(region)}" if is_usual else "")
        for service, host in hosts
    )
    key_id, secret = environment.get("AWS_ACCESS_KEY_ID", ""), environment.get("AWS_SECRET_ACCESS_KEY", "")
    urls = (dynamodb_url, s3_url.replace("{bucket}", "bucket"), sqs_url)
    if not (region and key_id and secret and all(map(_is_bare_host, urls))):
        return None
    credentials = Credentials(key_id, secret, environment.get("AWS_SESSION_TOKEN", ""))
    return PlainAws(region, dynamodb_url, credentials, s3_url, sqs_url, lambda_url if _is_bare_host(lambda_url) else "")


def _is_bare_host(url: str) -> bool:
    """Returns whether the URL is a scheme, a host and perhaps a port, without a path: the signature is over "/"."""
    return re.fullmatch(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/?", url) is not None


# Short limits and few tries: if a service is slower than this, that is an outage, and the machine retries.
CONNECT_S = 1
READ_S = 2


def dynamodb(plain: PlainAws | None, *, tries: int) -> Any:
    """Returns a client with the calls that the store makes; a request is sent at most `tries` times."""
    return boto3_client("dynamodb", tries) if plain is None else _plain(plain, plain.dynamodb_url, "dynamodb", tries)


def queue(plain: PlainAws | None, *, tries: int) -> Any:
    """Returns a client with SQS's call that sends a message."""
    return boto3_client("sqs", tries) if plain is None else _plain(plain, plain.sqs_url, "sqs", tries)


def bucket(plain: PlainAws | None, *, tries: int) -> Any:
    """Returns a client with the two S3 calls that the store makes."""
    if plain is None:
        return boto3_client("s3", tries)
    from handlers.aws.plain_clients import PlainS3

    return PlainS3(plain.s3_url, plain.signer("s3"), tries=tries, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S)


def functions(plain: PlainAws | None, *, read_timeout_s: int) -> Any:
    """A client with Lambda's call that invokes a function; it sends the call once and waits `read_timeout_s`."""
    if plain is None or not plain.lambda_url:
        return boto3_client("lambda", 1, read_timeout_s)
    from handlers.aws.plain_clients import PlainLambda

    signer = plain.signer("lambda")
    return PlainLambda(plain.lambda_url, signer, connect_timeout_s=CONNECT_S, read_timeout_s=read_timeout_s)


def _plain(plain: PlainAws, url: str, service: str, tries: int) -> DynamoDb:
    return DynamoDb(url, plain.signer(service), tries=tries, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S)


@cache
def boto3_client(service: str, tries: int = 4, read_timeout_s: int = READ_S, at_once: int = 2) -> Any:
    """Returns boto3's client of a service, one for all callers, made by botocore: boto3 around it takes 3 MB more."""
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": tries},
        max_pool_connections=at_once,
        tcp_keepalive=True,
        parameter_validation=False,
        # Otherwise botocore composes it anew for each request, which takes longer than signing.
        user_agent="streamkeeper",
    )
    return botocore.session.get_session().create_client(service, config=config)
