"""The addresses of a run's parts, and those that its functions get.

Invariant: the addresses that a function gets lead only to this run, or to endpoints of the user's environment.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from local.aws_endpoints import Endpoints
from local.listener import HOST, port_of

_DEMO = "UPSTREAM_DEMO"


@dataclass(frozen=True)
class Sockets:
    """The listening sockets, all on 127.0.0.1; `embedded_aws` is None if the user's endpoints replace it."""

    api: socket.socket
    aws: socket.socket
    upstreams: socket.socket
    embedded_aws: socket.socket | None


class FunctionAddresses:
    """The addresses for functions; `is_guarded` says whether the AWS endpoint checks their requests.

    `aws` is the AWS endpoint, `upstreams` the variables with which the addresses of profiles may begin.
    """

    def __init__(
        self, endpoints: Endpoints, sockets: Sockets, environment: Mapping[str, str], *, is_guarded: bool
    ) -> None:  # fmt: skip
        self.aws = f"http://{HOST}:{port_of(sockets.aws)}"
        own = {name: value for name, value in environment.items() if name.startswith("UPSTREAM_") and value}
        self.upstreams = {_DEMO: f"http://{HOST}:{port_of(sockets.upstreams)}"} | own
        # With a guard, all requests go through the AWS endpoint.
        self._endpoints = Endpoints({}, self.aws) if is_guarded else endpoints
        self._is_guarded = is_guarded

    def variables(self) -> dict[str, str]:
        """Returns the variables of every function's environment that contain addresses."""
        # Step Functions and the functions are always this service's own.
        own = {"AWS_ENDPOINT_URL_SFN": self.aws, "AWS_ENDPOINT_URL_LAMBDA": self.aws}
        # At AWS, StartSyncExecution has a different host name; here it has the same.
        own["AWS_DISABLE_HOST_PREFIX_INJECTION"] = "true"
        return self._endpoints.environment() | self.upstreams | own

    def queues(self, queue_urls: Mapping[str, str]) -> dict[str, str]:
        """Returns the queues' addresses for functions."""
        if not self._is_guarded:
            return dict(queue_urls)
        origin = self._endpoints.of("sqs")
        return {name: f"{origin}{urlsplit(address).path}" for name, address in queue_urls.items()}
