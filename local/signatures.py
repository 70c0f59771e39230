"""Reads who signed a request to AWS, and for which service; the signature itself is not checked."""

import re

from starlette.requests import Request

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")


def scope(request: Request) -> tuple[str, str]:
    """Returns the access key id and the service of a request's credential; "" where it has none.

    Source: "Create a signed AWS API request": Credential=<access key id>/<day>/<region>/<service>/aws4_request.
    """
    key, _, service = _credential(request)
    return key, service


def region(request: Request, default: str) -> str:
    """Returns the region of a request's credential; the default where it has none."""
    named = _credential(request)[1]
    return named if _REGION.fullmatch(named) else default


def _credential(request: Request) -> tuple[str, str, str]:
    header = request.headers.get("authorization", "")
    credential = header.partition("Credential=")[2].partition(",")[0] or request.query_params.get(
        "X-Amz-Credential", ""
    )
    parts = credential.split("/")
    return (parts[0], parts[2], parts[3]) if len(parts) > 3 else ("", "", "")
