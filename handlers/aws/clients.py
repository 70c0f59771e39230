"""Makes the AWS clients that a function needs: DynamoDB's at the cold start, every other one at its first use.

DynamoDB, the dead-letter queue, the bucket and Lambda get small clients if the environment has everything that these
need, as in a function; otherwise boto3's. boto3 is imported when one of its clients is made: the import takes 20 MB,
and longer than the rest of a cold start.
"""

from functools import cache
from typing import Any

from handlers.aws.lambda_environment import PlainAws
from handlers.dynamodb.client import DynamoDb

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
