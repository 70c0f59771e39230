"""Says where the parts of a run listen, and what its functions reach there.

Invariant: what a function is given leads to this run alone, or to what the user's environment names.
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
    """The listening sockets, all on 127.0.0.1; `embedded_aws` is None where the user's endpoints replace it."""

    api: socket.socket
    aws: socket.socket
    upstreams: socket.socket
    embedded_aws: socket.socket | None


class FunctionAddresses:
    """What functions reach; `is_guarded` is whether the AWS endpoint judges their requests.

    `aws` is the AWS endpoint, `upstreams` the variables that the addresses of profiles may begin with.
    """

    def __init__(
        self, endpoints: Endpoints, sockets: Sockets, environment: Mapping[str, str], *, is_guarded: bool
    ) -> None:  # fmt: skip
        self.aws = f"http://{HOST}:{port_of(sockets.aws)}"
        own = {name: value for name, value in environment.items() if name.startswith("UPSTREAM_") and value}
        self.upstreams = {_DEMO: f"http://{HOST}:{port_of(sockets.upstreams)}"} | own
        # Behind a guard all requests go through the AWS endpoint, which sees each.
        self._endpoints = Endpoints({}, self.aws) if is_guarded else endpoints
        self._is_guarded = is_guarded

    def variables(self) -> dict[str, str]:
        """Returns the variables of every function's environment that lead somewhere."""
        # Step Functions is this service's own, whatever the embedded AWS has, and so are the functions.
        own = {"AWS_ENDPOINT_URL_SFN": self.aws, "AWS_ENDPOINT_URL_LAMBDA": self.aws}
        # StartSyncExecution has a host of its own at AWS, and here it is another name for none.
        own["AWS_DISABLE_HOST_PREFIX_INJECTION"] = "true"
        return self._endpoints.environment() | self.upstreams | own

    def queues(self, queue_urls: Mapping[str, str]) -> dict[str, str]:
        """Returns the queues' addresses at the endpoint that functions reach."""
        if not self._is_guarded:
            return dict(queue_urls)
        origin = self._endpoints.of("sqs")
        return {name: f"{origin}{urlsplit(address).path}" for name, address in queue_urls.items()}
