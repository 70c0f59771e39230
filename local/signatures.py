"""Reads who signed a request to AWS, and for which service; the signature itself is not checked."""

from starlette.requests import Request


def scope(request: Request) -> tuple[str, str]:
    """Returns the access key id and the service of a request's credential; "" where it has none.

    Source: "Create a signed AWS API request": Credential=<access key id>/<day>/<region>/<service>/aws4_request.
    """
    header = request.headers.get("authorization", "")
    credential = header.partition("Credential=")[2].partition(",")[0] or request.query_params.get(
        "X-Amz-Credential", ""
    )
    parts = credential.split("/")
    return (parts[0], parts[3]) if len(parts) > 3 else ("", "")
