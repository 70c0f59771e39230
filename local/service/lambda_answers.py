"""What the answers of Lambda's API have in common here.

Invariant: an error has the shape that boto3 and the AWS command line read.
"""

import json
from typing import Any

from starlette.responses import Response

from local.template import ACCOUNT, REGION

FUNCTIONS = "/2015-03-31/functions"


def lambda_error(status: int, code: str, message: str, kind: str, **more: str) -> Response:
    """An error of Lambda's API."""
    text = json.dumps({"Type": kind, "Message": message, "message": message} | more)
    return Response(text, status, media_type="application/json", headers={"x-amzn-ErrorType": code})


def missing(message: str) -> Response:
    """The error for what is not there."""
    return lambda_error(404, "ResourceNotFoundException", message, "User")


def arn(function: str, qualifier: str = "") -> str:
    """The ARN of a function, or of a version or an alias of it."""
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}{f':{qualifier}' if qualifier else ''}"


def read_object(body: bytes) -> dict[str, Any]:
    """The object that a request has as its body; an empty one where it has none."""
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
