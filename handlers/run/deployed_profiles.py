"""Reads the profile of a stream: the function's own, or that of the function that is deployed now.

A function that keeps a group lives for a quarter of an hour, and a profile may be deployed meanwhile. So it invokes the
function by the name by which it was itself invoked (`…:connection-manager:stable`), which the next lane would run, and
receives the text of the file:

    {"profile": "prices"}  ->  {"text": "address = …", "upstreams": {"UPSTREAM_PRICES": "http://…"}}
                               {"problem": "there is no stream 'prices': no profile is named 'prices'"}

Invariant: the answer has names of secrets and never a secret, like the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.run.profile_source import Profiles

# How long another function may take to start and read a file.
ANSWER_WITHIN_S = 10


def read_profile(stream_id: str, profiles: Profiles) -> Profile:
    """The profile of the stream; raises InvalidRequest if there is none or it is wrong, and StoreUnavailable."""
    profile = profiles.profile(stream_id)
    try:
        profile.address_for(stream_id)
    except ProfileError as error:
        raise InvalidRequest(str(error)) from None
    return profile


def answer_profile_request(event: object, profiles: Profiles) -> dict[str, Any] | None:
    """Returns the answer to a function that requests a profile; None for any other event. Raises StoreUnavailable."""
    name = event.get("profile") if isinstance(event, Mapping) else None
    if not isinstance(name, str):
        return None
    try:
        profiles.profile(name)
    except InvalidRequest as error:
        return {"problem": str(error)}
    return {"text": profiles.text(check_stream_id(name)), "upstreams": dict(profiles.places.upstreams)}


def request_profile(functions: Any, function_arn: str, stream_id: str, profiles: Profiles) -> Profile:
    """Returns the profile of the stream as the function of that ARN has it; `functions` is a client of Lambda.

    Raises InvalidRequest if that function has none either, StoreUnavailable if its answer cannot be read here.
    """
    name = check_stream_id(stream_id)
    with translate_errors("Invoke"):
        answer = functions.invoke(FunctionName=function_arn, Payload=json.dumps({"profile": name}).encode())
    match None if "FunctionError" in answer else json.loads(answer["Payload"].read()):
        case {"problem": str(problem)}:
            raise InvalidRequest(problem)
        case {"text": str(text), "upstreams": dict(upstreams)}:
            try:
                return profiles.parse(name, text, upstreams)
            except InvalidRequest:
                # A later version may know a field that this one does not.
                raise StoreUnavailable(f"this version cannot read the deployed profile {name!r}") from None
    raise StoreUnavailable(f"the deployed function did not return the profile {name!r}")
