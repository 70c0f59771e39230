"""Says a failure of urllib3 as botocore says it: the small clients raise what boto3's do."""

from typing import Any

import urllib3


def not_answered(url: str, error: urllib3.exceptions.HTTPError) -> Any:
    """botocore's error for one of the transport; imported when there is one, for most functions never have any."""
    from botocore import exceptions

    # Of these the first is a kind of the second.
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return exceptions.EndpointConnectionError(endpoint_url=url)
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return exceptions.ConnectTimeoutError(endpoint_url=url)
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return exceptions.ReadTimeoutError(endpoint_url=url)
    return exceptions.ConnectionClosedError(endpoint_url=url)
