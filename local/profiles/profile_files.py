"""Reads profile files, and checks whether a stream can be started from them on this machine.

Invariant: the rules and the files are those of the function, so it accepts the id and the profile of what passes.
"""

import contextlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from handlers.api import known_profiles
from handlers.api.answers import Problem
from handlers.profile.addresses import ProfileError, check_stream_id, part_ids
from handlers.profile.parse import parse
from local.stages import read_schema
from local.terminal import UserError, explain_os_errors

# A variable is an address that the function knows; a file is valid even if it is not set here.
_VARIABLE = re.compile(r"\$\{(UPSTREAM_[A-Z0-9_]+)\}")
# The most bytes of a profile; a larger file is something else.
_MOST_BYTES = 1_000_000


def read_profile_text(path: Path) -> str:
    """Returns the text of a profile's file; raises UserError if it cannot be read."""
    with explain_os_errors(f"{path} cannot be read"), path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path} cannot be read: it is larger than a profile may be, {_MOST_BYTES} bytes.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} cannot be read: it is not UTF-8 text.") from None


def split_stream_argument(stream: str) -> tuple[str, Path | None]:
    """Returns the stream id, and the profile's file if that was given instead."""
    path = Path(stream)
    is_file = path.suffix == ".toml" and (path.is_file() or ":" not in stream)
    return (path.stem, path) if is_file else (stream, None)


def placeholders(text: str) -> dict[str, str]:
    """Returns an address for each variable in a profile's text, to check it without them."""
    return dict.fromkeys(_VARIABLE.findall(text), "https://upstream.invalid")


def check_upstreams(paths: Iterable[Path], environment: Mapping[str, str]) -> None:
    """Raises UserError if a variable that one of these profiles begins with is set, but is not an address."""
    (rules,) = read_schema()["properties"]["upstreams"]["patternProperties"].values()
    used: set[str] = set()
    for path in paths:
        # A file that cannot be read is reported when its stream is started; others run meanwhile.
        with contextlib.suppress(UserError):
            used.update(_VARIABLE.findall(read_profile_text(path)))
    for name in sorted(used):
        value = environment.get(name)
        if value and not re.search(rules["pattern"], value):
            raise UserError(f"{name} must be {rules['mustBe']}.")


def sinks_of(stream_id: str, folder: Path) -> frozenset[str]:
    """Returns stand-ins for the sinks in the stream's file; none if it is missing or not TOML."""
    name = stream_id.partition(":")[0]
    try:
        return known_profiles.sinks_of(name, (folder / f"{name}.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return frozenset()


def parts_of(stream_id: str, known: Mapping[str, Path]) -> tuple[str, ...]:
    """Returns the ids of the streams in which a stream is read by its file among `known`; () if it is connected itself.

    Raises UserError if the file cannot be read.
    """
    path = known.get(stream_id)
    return () if path is None else known_profiles.parts_of(stream_id, read_profile_text(path))


def find_problem(stream_id: str, folder: Path, variables: Mapping[str, str]) -> Problem | None:
    """Returns the problem of a stream that cannot be started, or None.

    400: the id is malformed; 404: there is no such profile; 422: the profile itself is wrong.
    """
    try:
        name = check_stream_id(stream_id)
    except ProfileError as problem:
        return Problem("bad-stream-id", str(problem), "streamId")
    path = folder / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.toml"))) or "none"
        return Problem("unknown-stream", f"There is no stream profile {name!r}; the profiles are: {known}.", "streamId")
    try:
        profile = parse(name, tomllib.loads(read_profile_text(path)), variables)
    except tomllib.TOMLDecodeError as problem:
        return Problem("bad-profile", f"the profile {name!r} is not valid TOML: {problem}", "profile")
    except (ProfileError, UserError) as problem:
        return Problem("bad-profile", str(problem), "profile")
    try:
        for one in part_ids(name, profile.parts) if stream_id == name and profile.parts else (stream_id,):
            profile.address_for(one)
    except ProfileError as problem:
        return Problem("bad-stream-id", str(problem), "streamId")
    return None


def to_toml(value: Any) -> str:
    """Returns the value as one line of TOML, without null, which TOML lacks."""
    if isinstance(value, dict):
        members = (f"{quote(name)} = {to_toml(inner)}" for name, inner in value.items() if inner is not None)
        return f"{{ {', '.join(members)} }}"
    if isinstance(value, list):
        return f"[{', '.join(to_toml(one) for one in value if one is not None)}]"
    return quote(value) if isinstance(value, str) else json.dumps(value)


def quote(text: str) -> str:
    """Returns the text as a TOML string; TOML has the same escapes as JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
