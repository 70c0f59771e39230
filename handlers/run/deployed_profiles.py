"""Reads the profile of a stream: from the function's own files, or as the function that is deployed now has it.

A function that keeps a group lives for a quarter of an hour, and a profile may be deployed meanwhile. So it invokes the
function by the name that it was invoked by itself (`…:connection-manager:stable`), which is what the next lane would
run, and is told the text of the file:

    {"profile": "prices"}  ->  {"text": "address = …", "upstreams": {"UPSTREAM_PRICES": "http://…"}}
                               {"problem": "there is no stream 'prices': no profile is named 'prices'"}

Invariant: what is told holds names of secrets and never a secret, as the files do.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from handlers.aws.error_translation import translate_errors
from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.settings import RepairSettings, Settings

# For so long another function may start, and read a file.
TOLD_WITHIN_S = 10


def read_profile(stream_id: str, settings: Settings | RepairSettings) -> Profile:
    """The profile of the stream, from its file; raises InvalidRequest where there is none or it is wrong."""
    _, profile = _own(stream_id, settings)
    try:
        profile.address_for(stream_id)
    except ProfileError as error:
        raise InvalidRequest(str(error)) from None
    return profile


def told(event: object, settings: Settings) -> dict[str, Any] | None:
    """The answer to a function that requests a profile; None for any other event."""
    name = event.get("profile") if isinstance(event, Mapping) else None
    if not isinstance(name, str):
        return None
    try:
        text, _ = _own(name, settings)
    except InvalidRequest as error:
        return {"problem": str(error)}
    return {"text": text, "upstreams": dict(settings.upstreams)}


def ask(functions: Any, function_arn: str, stream_id: str, settings: Settings) -> Profile:
    """The profile of the stream as the function of that ARN has it; `functions` is a client of Lambda.

    Raises InvalidRequest where that has none either, StoreUnavailable where it tells nothing that can be read here.
    """
    name = check_stream_id(stream_id)
    with translate_errors("Invoke"):
        answer = functions.invoke(FunctionName=function_arn, Payload=json.dumps({"profile": name}).encode())
    match None if "FunctionError" in answer else json.loads(answer["Payload"].read()):
        case {"problem": str(problem)}:
            raise InvalidRequest(problem)
        case {"text": str(text), "upstreams": dict(upstreams)}:
            try:
                return _parsed(name, text, upstreams, settings)
            except (ProfileError, InvalidRequest):
                # A later version may know a field that this one does not.
                raise StoreUnavailable(f"this version cannot read the profile {name!r} as it is deployed") from None
    raise StoreUnavailable(f"the function as it is deployed did not tell the profile {name!r}")


def _own(stream_id: str, settings: Settings | RepairSettings) -> tuple[str, Profile]:
    """The text of the stream's profile and what it says; raises InvalidRequest."""
    try:
        name = check_stream_id(stream_id)
        text = (settings.streams_dir / f"{name}.toml").read_text(encoding="utf-8")
        return text, _parsed(name, text, settings.upstreams, settings)
    except UnicodeDecodeError:
        raise _not_toml(name) from None
    except FileNotFoundError:
        raise InvalidRequest(f"there is no stream {stream_id!r}: no profile is named {name!r}") from None
    except ProfileError as error:
        raise InvalidRequest(str(error)) from None


def _parsed(name: str, text: str, upstreams: Mapping[str, str], settings: Settings | RepairSettings) -> Profile:
    """Raises ProfileError, and InvalidRequest where it is not TOML."""
    try:
        return parse(name, tomllib.loads(text), upstreams, keep_days=settings.keep_days)
    except tomllib.TOMLDecodeError:
        raise _not_toml(name) from None


def _not_toml(name: str) -> InvalidRequest:
    # The parser's own message quotes the file, which may hold a secret.
    return InvalidRequest(f"the profile {name!r} is not valid TOML")
