"""Finds the profiles of a stage: in its bucket, if it has one (PROFILES_BUCKET), else among the function's files.

The object `<folder><name>.toml` takes precedence over the packaged file of that name. An object is requested again
after 45 s, by its ETag, so a new version is in use, or named as wrong, within a minute. An unchanged one costs a
request without a body: 2.3 cents a month for a function that needs a name all the time. If a version is wrong, the
former one is used, from memory or from the versions that the bucket keeps, and `Found` says why.
docs/profiles.md#profiles-in-a-bucket explains this.

Invariants: no event costs a request; unless `forget` is called, a name costs at most one request in READ_AGAIN_S, and
none for as long if S3 did not answer; a wrong text never replaces a valid one.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from handlers.aws.error_translation import code_of, translate_errors
from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.settings import ControlSettings, DeliverySettings, RepairSettings, Settings
from handlers.values import dataclass

# Leaves 15 s of the promised minute to the start of a function, to S3 and to the former versions.
READ_AGAIN_S = 45
# How many versions before the newest are read to find a valid one.
FORMER_VERSIONS = 5
_ABSENT, _SAME = ("NoSuchKey", "404"), "304"
# The answers of stores with S3's protocol but without its versions.
_NO_VERSIONS = ("NotImplemented", "MethodNotAllowed")


@dataclass(frozen=True, slots=True)
class Found:
    """A profile in use. `problem` says why the newest object is not in use; "" if it is, or if there is none."""

    text: str
    problem: str = ""


@dataclass(slots=True)
class _Object:
    """A name's object when it was last read; `found` is None if there is none."""

    etag: str = ""
    found: Found | None = None
    read_s: float = 0


@dataclass(eq=False)
class Profiles:
    """The profiles of one stage, as one function reads them.

    `s3` makes the client that gets objects, `versions` boto3's client, which is rarely needed; `warn` takes a sentence
    about each object that is not used. `keep_days` applies if a profile does not say, `stage_budget` is as for `parse`.
    """

    places: Settings | ControlSettings | RepairSettings | DeliverySettings
    s3: Callable[[], Any]
    versions: Callable[[], Any]
    warn: Callable[[str], object]
    keep_days: int = 0
    stage_budget: tuple[int, int] = (0, 0)
    now_s: Callable[[], float] = time.monotonic
    _objects: dict[str, _Object] = field(default_factory=dict)
    _parsed: dict[str, tuple[str, Profile]] = field(default_factory=dict)
    _silent_until_s: float = 0

    def find(self, name: str) -> Found | None:
        """Returns the profile of that name; None if there is none. Raises StoreUnavailable."""
        if not self.places.profiles_bucket:
            return self._packaged(name)
        known = self._objects.get(name)
        if known is None or self.now_s() - known.read_s >= READ_AGAIN_S:
            known = self._read(name, known or _Object())
            # A name without a profile is looked up each time: it may exist by now, and remembering every such name
            # would need memory.
            if known.etag or self._path(name).is_file():
                self._objects[name] = known
            else:
                self._objects.pop(name, None)
        return known.found or self._packaged(name)

    def forget(self, name: str) -> None:
        """Makes the next `find` request the object, however recently it was read."""
        if (known := self._objects.get(name)) is not None:
            known.read_s = -READ_AGAIN_S

    def text(self, name: str) -> str:
        """Returns the text of the profile, "" if there is none; raises StoreUnavailable."""
        found = self.find(name)
        return "" if found is None else found.text

    def names(self) -> list[str]:
        """Returns the names of all profiles, in order; only those of the packaged files if S3 does not answer."""
        names = {path.stem for path in self.places.streams_dir.glob("*.toml")}
        if self.places.profiles_bucket:
            try:
                names |= self._list_names()
            except StoreUnavailable as error:
                self.warn(str(error))
        return sorted(names)

    def profile(self, stream_id: str) -> Profile:
        """Returns the profile of the stream; raises InvalidRequest if there is none or it is wrong."""
        try:
            name = check_stream_id(stream_id)
            found = self.find(name)
        except ProfileError as error:
            raise InvalidRequest(str(error)) from None
        except UnicodeDecodeError:
            raise _not_toml(name) from None
        if found is None:
            raise InvalidRequest(f"there is no stream {stream_id!r}: no profile is named {name!r}")
        if self._parsed.get(name, ("",))[0] != found.text:
            self._parsed[name] = found.text, self.parse(name, found.text, self.places.upstreams)
        return self._parsed[name][1]

    def parse(self, name: str, text: str, upstreams: Mapping[str, str]) -> Profile:
        """Returns the profile that a text describes; raises InvalidRequest."""
        # Imported here: the API's function needs it only for a bucket, and each import lengthens the cold start.
        from handlers.profile.parse import parse

        try:
            table = tomllib.loads(text)
            return parse(name, table, upstreams, keep_days=self.keep_days, stage_budget=self.stage_budget)
        except tomllib.TOMLDecodeError:
            raise _not_toml(name) from None
        except ProfileError as error:
            raise InvalidRequest(str(error)) from None

    def _path(self, name: str) -> Path:
        return self.places.streams_dir / f"{name}.toml"

    def _packaged(self, name: str) -> Found | None:
        try:
            return Found(self._path(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _get(self, name: str, **more: str) -> tuple[bytes, str]:
        """Returns the content and the ETag of the name's object; raises StoreUnavailable."""
        s3 = self.versions() if "VersionId" in more else self.s3()
        with translate_errors("GetObject"):
            answer = s3.get_object(Bucket=self.places.profiles_bucket, Key=self._key(name), **more)
            return answer["Body"].read(), answer["ETag"]

    def _key(self, name: str) -> str:
        return f"{self.places.profiles_folder}{name}.toml"

    def _read(self, name: str, known: _Object) -> _Object:
        """Returns the name's object as it is now; as it was known if S3 does not answer."""
        if self.now_s() < self._silent_until_s:
            return self._keep_known(known, StoreUnavailable("S3 did not answer a moment ago"))
        now_s, etag = self.now_s(), {"IfNoneMatch": known.etag} if known.etag else {}
        try:
            data, new = self._get(name, **etag)
        except StoreUnavailable as error:
            code = code_of(error.__cause__)
            if code == _SAME:
                return _Object(known.etag, known.found, now_s)
            if code in _ABSENT:
                return _Object(read_s=now_s)
            self._silent_until_s = now_s + READ_AGAIN_S
            return self._keep_known(known, error)
        wrong = self._problem_of(name, data)
        if not wrong:
            return _Object(new, Found(data.decode()), now_s)
        try:
            former = self._previous_version(name, known)
        except StoreUnavailable as error:
            return self._keep_known(known, error)
        instead = "its former version is used" if former is not None else "it has no former version"
        problem = f"the profile {name!r} in the bucket is wrong, and {instead}: {wrong}"
        self.warn(problem)
        # Without a former version nothing can be used: a start of the stream is refused with the reason.
        text = data.decode(errors="replace") if former is None else former.text
        return _Object(new, Found(text, problem), now_s)

    def _keep_known(self, known: _Object, error: StoreUnavailable) -> _Object:
        """Returns what was known, for another minute; raises the error if nothing was."""
        if not known.etag:
            raise error
        self.warn(f"profiles are used as they were read before: {error}")
        return _Object(known.etag, known.found, self.now_s())

    def _problem_of(self, name: str, data: bytes) -> str:
        """Returns why the text of a profile is wrong; "" if it is valid."""
        from handlers.upstream.address_policy import numeric_refusal  # needed only for a bucket

        try:
            profile = self.parse(name, data.decode(), self.places.upstreams)
        except UnicodeDecodeError:
            return "it is not UTF-8 text"
        except InvalidRequest as error:
            return str(error)
        if profile.parts:
            return f"the profile {name!r}: parts must be packaged, because the API's template names them"
        why = numeric_refusal(profile.address, allow_private=profile.allow_private)
        return f"the profile {name!r}: address leads to {why}" if why else ""

    def _previous_version(self, name: str, known: _Object) -> Found | None:
        """Returns what was used until now, else the newest valid version in the bucket, else the packaged file."""
        if known.found is not None and not self._problem_of(name, known.found.text.encode()):
            return known.found
        place = {"Bucket": self.places.profiles_bucket, "Prefix": self._key(name)}
        try:
            with translate_errors("ListObjectVersions"):
                listed = self.versions().list_object_versions(**place, MaxKeys=1 + FORMER_VERSIONS)
        except StoreUnavailable as error:
            if code_of(error.__cause__) not in _NO_VERSIONS:
                raise
            listed = {}
        for one in listed.get("Versions", []):
            if one["Key"] == self._key(name) and not one["IsLatest"]:
                data, _ = self._get(name, VersionId=one["VersionId"])
                if not self._problem_of(name, data):
                    return Found(data.decode())
        return self._packaged(name)

    def _list_names(self) -> set[str]:
        folder = self.places.profiles_folder
        with translate_errors("ListObjectsV2"):
            pages = self.versions().get_paginator("list_objects_v2")
            keys = [
                one["Key"].removeprefix(folder)
                for page in pages.paginate(Bucket=self.places.profiles_bucket, Prefix=folder, Delimiter="/")
                for one in page.get("Contents", ())
            ]
        return {key.removesuffix(".toml") for key in keys if key.endswith(".toml")}


def _not_toml(name: str) -> InvalidRequest:
    # The parser's own message quotes the file, which may hold a secret.
    return InvalidRequest(f"the profile {name!r} is not valid TOML")
