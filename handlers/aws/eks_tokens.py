"""Makes the token by which a cluster of EKS recognises a role: a request to STS, presigned, which the cluster sends.

    k8s-aws-v1.aHR0cHM6Ly9zdHMuZXUtY2VudHJhbC0xLmFtYXpvbmF3cy5jb20vP0FjdGlvbj1HZXRDYWxsZXJJZGVudGl0eSZ…

STS answers the cluster with the role's ARN, so the role needs no permission, and nothing is requested here. Invariant:
botocore is imported only if the environment has no credentials.
"""

import base64
import time

from handlers.aws.lambda_environment import PlainAws, dns_suffix
from handlers.connection.inputs import Closed
from handlers.dynamodb.sigv4 import Credentials, Signer

PREFIX, CLUSTER_HEADER = "k8s-aws-v1.", "x-k8s-aws-id"
# EKS accepts a token until a quarter of an hour after its date, although its signature is valid for a minute.
LIVES_MS, SIGNATURE_S = 15 * 60_000, 60
_QUERY = {"Action": "GetCallerIdentity", "Version": "2011-06-15"}


def sign_cluster_token(plain: PlainAws | None, cluster: str, region: str) -> tuple[str, int] | Closed:
    """Returns a token and its life in milliseconds, or why there is none.

    It is signed with the credentials in `plain`, or with those that botocore finds.
    """
    problem = f"a token for the cluster {cluster!r} cannot be signed"
    try:
        keys = _find_credentials() if plain is None else plain.credentials
    except Exception as error:  # botocore reads files, runs programs and requests addresses for them
        return Closed("no_token", f"{problem}: {type(error).__name__}")
    if keys is None:
        return Closed("no_token", f"{problem}: there are no AWS credentials")
    return token(keys, cluster, region, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())), LIVES_MS


def token(keys: Credentials, cluster: str, region: str, stamp: str) -> str:
    """Returns the token; `stamp` is the time in UTC as 20260131T235959Z."""
    signer, host = Signer(keys, region, "sts"), f"sts.{region}.{dns_suffix(region)}"
    address = signer.presigned_url(host, _QUERY, {CLUSTER_HEADER: cluster}, stamp, SIGNATURE_S)
    return PREFIX + base64.urlsafe_b64encode(address.encode()).decode().rstrip("=")


def _find_credentials() -> Credentials | None:
    import botocore.session

    found = botocore.session.get_session().get_credentials()
    if found is None:
        return None
    keys = found.get_frozen_credentials()
    return Credentials(keys.access_key, keys.secret_key, keys.token or "")
