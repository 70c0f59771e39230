"""Examines profiles from where the function runs: which secrets it may read, and which hosts it can connect to.

`streamkeeper doctor` invokes the connection manager for this, because only that has its role and its network:

    {"examine": []}          ->  {"profiles": ["prices"]}
    {"examine": ["prices"]}  ->  {"examined": {"prices": {"newest": "", "secrets": {"the secret 'key'": ""},
                                  "hosts": {"https://prices.example:443": "nothing listens at the address"},
                                  "sinks": [{"kind": "sqs", "name": "orders.fifo", "prefix": "", "secret": ""}]}}}

The value "" means that the secret was read, or the host was connected to; `newest` says why the newest version of the
profile in a bucket is not in use. Invariants: a connection is made, with TLS, and closed before a request is sent on
it, so no upstream counts it as a stream; no answer has a secret or a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import urllib3

from handlers.aws.secret_values import SecretValues, secret_name
from handlers.errors import InvalidRequest, StoreUnavailable, StreamDropped, StreamRejected
from handlers.profile.addresses import ProfileError, origin_of
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Reference, Secrets
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.run.profile_source import Profiles
from handlers.upstream.end_reasons import explain
from handlers.upstream.opening import open_response
from handlers.upstream.strict_response import StrictResponse

# A host that does not answer within this counts as not reached; a function has time for many of them.
WITHIN_S = 5.0


class _Connected(Exception):
    """The connection is made; raised instead of sending the request."""


def answer_examination(event: object, profiles: Profiles, secrets: SecretValues) -> dict[str, Any] | None:
    """Returns the answer to an event that requests an examination of profiles; None for any other event."""
    wanted = event.get("examine") if isinstance(event, Mapping) else None
    if not isinstance(wanted, list):
        return None
    if not wanted:
        return {"profiles": profiles.names()}
    return {"examined": {name: _examine(name, profiles, secrets) for name in wanted if isinstance(name, str)}}


def _examine(name: str, profiles: Profiles, secrets: SecretValues) -> dict[str, Any]:
    try:
        profile = profiles.profile(name)
    except (InvalidRequest, StoreUnavailable) as error:
        return {"problem": str(error)}
    values: dict[Reference, str] = {}
    read = {secret_name(reference): _read_secret(reference, secrets, values) for reference in profile.secrets}
    found = profiles.find(name)
    return {
        "newest": "" if found is None else found.problem,
        "secrets": read,
        "hosts": {origin_of(request.address): _connection_problem(request) for request in _requests(profile, values)},
        "sinks": [
            {
                "kind": sink.kind,
                "name": sink.label.partition(":")[2],
                "prefix": sink.prefix,
                "secret": "" if sink.secret is None else f"{sink.secret.kept_in}:{sink.secret.name}",
            }
            for sink in profile.deliver
        ],
    }


def _read_secret(reference: Reference, secrets: SecretValues, values: dict[Reference, str]) -> str:
    """Returns why the secret cannot be read; "" if it can, and then adds it to the values."""
    try:
        values |= secrets.read([reference], anew=True)
    except (StreamRejected, StreamDropped) as error:
        return str(error)
    return ""


def _requests(profile: Profile, values: Secrets) -> list[UpstreamRequest]:
    """Returns a request for each host that the profile names."""
    beside = [one.address for one in (profile.token, profile.ticket, profile.repair) if one and one.address]
    own = {origin_of(address): profile.allow_private for address in (profile.address, *beside)}
    hooks = {origin_of(sink.name): sink.allow_private for sink in profile.deliver if sink.kind == "webhook"}
    trust = profile.trust(values) if set(profile.secrets) <= set(values) else None
    return [
        UpstreamRequest("GET", host, {}, None, private, trust=trust if host == origin_of(profile.address) else None)
        for host, private in (hooks | own).items()
    ]


def _connection_problem(request: UpstreamRequest) -> str:
    """Returns why no connection could be made; "" if one was."""
    try:
        with open_response(request, urllib3.Timeout(WITHIN_S), _stop, StrictResponse):
            raise AssertionError("no request is sent")
    except _Connected:
        return ""
    except (OSError, ProfileError, urllib3.exceptions.HTTPError) as error:
        return explain(error, WITHIN_S).detail


def _stop(_: object) -> None:
    raise _Connected
