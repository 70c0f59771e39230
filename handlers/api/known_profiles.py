"""Tells the control API what it needs of a stream's profile: whether there is one, and what its text names.

A profile that is wrong, or cannot be read, names nothing; a status shows its problem. Invariant: nothing is written.
"""

import contextlib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from handlers.api.answers import Problem
from handlers.api.connection_records import Records
from handlers.errors import StoreUnavailable
from handlers.profile.addresses import is_repeated, part_ids
from handlers.run.profile_source import Profiles
from handlers.settings import ControlSettings

_Read = TypeVar("_Read", Records, Records | None)


class KnownProfiles:
    """The profiles of the stage: those of the package, or of the bucket if it has one."""

    def __init__(self, profiles: Profiles, settings: ControlSettings) -> None:
        self._profiles, self._settings = profiles, settings

    def has(self, profile: str) -> bool:
        """Returns whether there is a profile of that name."""
        if self._settings.profiles_bucket:
            try:
                return self._profiles.find(profile) is not None
            except StoreUnavailable as error:
                error.service = "S3"
                raise
        return self._packaged_path(profile).is_file()

    def fields(self, profile: str) -> frozenset[str]:
        """Returns the names of the fields of a profile."""
        return frozenset(fields_of(self.text(profile)))

    def parts(self, stream_id: str) -> tuple[str, ...]:
        """Returns the ids of the streams in which this one is read; () if it is connected itself.

        Only a packaged profile can name them, because the API's template does, so nothing is requested of the bucket.
        """
        packaged = self._packaged_path(stream_id)
        if ":" in stream_id or not packaged.is_file():
            return ()
        return parts_of(stream_id, packaged.read_text(encoding="utf-8", errors="replace"))

    def enrich(self, stream_id: str, records: _Read) -> _Read:
        """Returns the records with how far the upstream goes back and if it is requested only once; None for None."""
        if records is None:
            return records
        fields = fields_of(self.text(stream_id.partition(":")[0]))
        resume = fields.get("resume")
        reach_s = resume.get("reach_s") if isinstance(resume, Mapping) else None
        is_once = bool(fields) and not is_repeated(fields.get("method", "GET"), fields.get("again"))
        return replace(records, upstream_keeps_ms=reach_s * 1000 if isinstance(reach_s, int) else 0, is_once=is_once)

    def sinks(self, profile: str) -> frozenset[str]:
        """Returns the labels of the sinks that the profile names; none if it is not TOML."""
        return sinks_of(profile, self.text(profile))

    def _packaged_path(self, profile: str) -> Path:
        return self._settings.streams_dir / f"{profile}.toml"

    def problem(self, profile: str) -> str:
        """Returns why the newest version of the profile in the bucket is not used; "" if it is."""
        if self._settings.profiles_bucket:
            with contextlib.suppress(StoreUnavailable):
                found = self._profiles.find(profile)
                return "" if found is None else found.problem
        return ""

    def problem_without(self, stream_id: str, profile: str) -> Problem:
        """Returns the 404 of a stream without a record: it was never started, or has no profile."""
        if self.has(profile):
            return Problem("never-started", f"the stream {stream_id!r} was never started", "streamId")
        # Imported here: it is rarely needed, and each import lengthens the cold start.
        from difflib import get_close_matches

        words = f"there is no stream {stream_id!r}: no profile is named {profile!r}"
        close = get_close_matches(profile, self._profiles.names(), 1, 0.7)
        meant = f"Did you mean {close[0]!r}? " if close else ""
        return Problem("unknown-stream", words, "streamId", f"{meant}GET / lists all profiles")

    def text(self, profile: str) -> str:
        """Returns the text of a profile; "" if there is none, or it cannot be read."""
        try:
            return self._profiles.text(profile)
        except (StoreUnavailable, UnicodeDecodeError):
            return ""


@functools.lru_cache(100)
def fields_of(text: str) -> Mapping[str, Any]:
    """Returns the fields of a profile's text; none if it is not TOML."""
    try:
        return tomllib.loads(text)
    except ValueError:
        return {}


def parts_of(name: str, text: str) -> tuple[str, ...]:
    """Returns the ids of the streams in which the text of the profile `name` has its stream read; none mostly."""
    listed = fields_of(text).get("parts")
    is_sound = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
    return part_ids(name, listed) if is_sound and listed else ()


def sinks_of(profile: str, text: str) -> frozenset[str]:
    """Returns the labels of the sinks that the text of a profile names; none if it is not TOML."""
    if "deliver" not in fields_of(text):
        return frozenset()
    # Imported here: few profiles deliver, and each import lengthens the cold start.
    from handlers.profile.checked_fields import Fields
    from handlers.profile.deliver_field import targets

    return frozenset(target.label for target in targets(Fields(profile, tomllib.loads(text), [])))
