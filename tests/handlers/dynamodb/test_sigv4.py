"""The signature equals that of botocore's own signer."""

import datetime
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given
from hypothesis import strategies as st

from handlers.dynamodb.sigv4 import CONTENT_TYPE, Credentials, Signer

WORDS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)
REGIONS = st.sampled_from(["us-east-1", "eu-central-1", "cn-north-1", "us-gov-west-1"])
HOSTS = st.sampled_from(["dynamodb.us-east-1.amazonaws.com", "127.0.0.1:3001", "localhost:8000"])
TIMES = st.integers(946_684_800, 4_102_444_799).map(lambda at_s: datetime.datetime.fromtimestamp(at_s, datetime.UTC))


def botocore_signs(
    credentials: Credentials, region: str, host: str, operation: str, body: bytes, at: datetime.datetime
) -> str:
    """Return the Authorization header that botocore makes for the request."""
    headers = HTTPHeaders()
    for name, value in (("X-Amz-Target", f"DynamoDB_20120810.{operation}"), ("Content-Type", CONTENT_TYPE)):
        headers[name] = value
    request = AWSRequest("POST", f"https://{host}/", headers=headers, data=body)
    keys = BotocoreCredentials(
        credentials.access_key_id, credentials.secret_access_key, credentials.session_token or None
    )
    with mock.patch("botocore.auth.get_current_datetime", return_value=at):
        SigV4Auth(keys, "dynamodb", region).add_auth(request)
    return str(request.headers["Authorization"])


@given(WORDS, WORDS, st.just("") | WORDS, REGIONS, HOSTS, WORDS, st.binary(max_size=200), TIMES)
def test_any_request_is_signed_as_botocore_signs_it(
    key_id: str, secret: str, token: str, region: str, host: str, operation: str, body: bytes, at: datetime.datetime
) -> None:
    """Equal credentials, request and time give the same header, with or without a kept key of the day."""
    credentials = Credentials(key_id, secret, token)
    expected = botocore_signs(credentials, region, host, operation, body, at)
    signer = Signer(credentials, region)
    signer.headers(host, "Another", b"", "20000101T000000Z")
    for _ in range(2):
        headers = signer.headers(host, operation, body, at.strftime("%Y%m%dT%H%M%SZ"))
        assert headers["authorization"] == expected


@given(WORDS, WORDS, st.just("") | WORDS, REGIONS, WORDS, st.text(max_size=20), TIMES)
def test_any_address_is_presigned_as_botocore_presigns_it(
    key_id: str, secret: str, token: str, region: str, cluster: str, value: str, at: datetime.datetime
) -> None:
    """Equal credentials, query, header and time give the same parameters, the signature included."""
    keys, host = BotocoreCredentials(key_id, secret, token or None), f"sts.{region}.amazonaws.com"
    request = AWSRequest("GET", f"https://{host}/", params={"Action": "Get", "value": value})
    request.headers["x-k8s-aws-id"] = cluster
    with mock.patch("botocore.auth.get_current_datetime", return_value=at):
        SigV4QueryAuth(keys, "sts", region, expires=60).add_auth(request)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    signer, headers = Signer(Credentials(key_id, secret, token), region, "sts"), {"x-k8s-aws-id": cluster}
    address = signer.presigned_url(host, {"Action": "Get", "value": value}, headers, stamp, 60)
    ours, theirs = (urlsplit(one) for one in (address, request.url))
    assert ours[:3] == theirs[:3]
    assert sorted(parse_qsl(ours.query, True)) == sorted(parse_qsl(theirs.query, True))


def test_credentials_do_not_show_themselves() -> None:
    """The repr of credentials, which a traceback or a log may print, shows no secret."""
    assert "secret" not in repr(Credentials("secret-id", "secret-key", "secret-token"))
