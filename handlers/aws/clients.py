"""Makes the AWS clients that a function needs: DynamoDB's at the cold start, every other one at its first use.

DynamoDB gets the small client of handlers/dynamodb/client.py where the environment says all that it needs, as Lambda's
does, and boto3's otherwise. boto3 is imported where one of its clients is made: the import takes longer than the rest
of a cold start.
"""

from functools import cache
from typing import Any

from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.settings import PlainAws

# Short limits and few tries: a service that is slower than this is an outage, and the machine retries those.
CONNECT_S = 1
READ_S = 2


def dynamodb(plain: PlainAws | None, *, tries: int) -> Any:
    """A client with the calls that the store makes; a request is sent `tries` times at most."""
    if plain is None:
        return boto3_client("dynamodb", tries)
    credentials = Credentials(plain.access_key_id, plain.secret_access_key, plain.session_token)
    signer = Signer(credentials, plain.region)
    return DynamoDb(plain.dynamodb_url, signer, tries=tries, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S)


@cache
def boto3_client(service: str, tries: int = 4) -> Any:
    """boto3's client of a service, one for all who ask, as botocore makes it: boto3 around it takes 3 MB more."""
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        retries={"mode": "standard", "total_max_attempts": tries},
        max_pool_connections=2,
        tcp_keepalive=True,
        parameter_validation=False,
        # Composed anew for each request otherwise, which takes longer than to sign it.
        user_agent="streamkeeper",
    )
    return botocore.session.get_session().create_client(service, config=config)
