"""The profiles of a bucket: which version is in use, and how many requests S3 gets."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from handlers.aws.lambda_environment import bucket, plain_aws
from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.run.profile_source import READ_AGAIN_S, Found, Profiles
from handlers.settings import Settings
from tests.handlers.aws import Aws
from tests.handlers.test_settings import environment
from tests.permission_edges import own_requests

FOLDER, NAMES = "streams/", itertools.count()
OLD, NEW = (f'address = "https://example.org/{each}"\nframing = "sse"\n' for each in ("old", "new"))
SLOW_DOWN = ClientError({"Error": {"Code": "SlowDown", "Message": "secret-value"}}, "GetObject")
WRONG = 'framing = "sse"\n'
REASON = "the profile 'prices': address is missing"


class Place:
    """A bucket that keeps versions, and functions that read it; `requests` counts the objects that they request."""

    def __init__(self, aws: Aws, folder: Path) -> None:
        self.name, self._folder = f"profiles-{next(NAMES)}", folder
        self.now_s, self.requests, self.warnings = 1000.0, 0, list[str]()
        self._s3 = aws.s3
        self._s3.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        self._s3.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        variables = {"AWS_ENDPOINT_URL": aws.s3.meta.endpoint_url, "AWS_DEFAULT_REGION": "eu-central-1"}
        self._plain = bucket(
            plain_aws(variables | {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}), tries=1
        )
        self.fails: Callable[[], None] = lambda: None

    def put(self, text: str, name: str = "prices") -> None:
        """Put a new version of a profile."""
        self._s3.put_object(Bucket=self.name, Key=f"{FOLDER}{name}.toml", Body=text.encode())

    def delete(self, name: str = "prices") -> None:
        self._s3.delete_object(Bucket=self.name, Key=f"{FOLDER}{name}.toml")

    def function(self) -> Profiles:
        """Return a cold function."""
        settings = environment(self._folder, PROFILES_BUCKET=self.name, PROFILES_FOLDER=FOLDER)
        return Profiles(
            Settings.load(settings), lambda: self, lambda: self._s3, self.warnings.append, now_s=lambda: self.now_s
        )

    def get_object(self, **asked: Any) -> Any:
        """Answer as S3 does, and count."""
        self.requests += 1
        self.fails()
        return self._plain.get_object(**asked)

    def close(self) -> None:
        self._plain.close()


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Iterator[Place]:
    """Return an empty bucket; `env/streams` has a profile `packaged`."""
    (tmp_path / "env" / "streams").mkdir(parents=True)
    (tmp_path / "env" / "streams" / "packaged.toml").write_text(OLD)
    # The roles of the tests' stage have no such bucket; the stage of tests/real/test_profiles_bucket.py has one.
    with own_requests():
        place = Place(aws, tmp_path)
        yield place
        place.close()


def test_a_profile_that_comes_later_is_found_and_a_change_within_a_minute(place: Place) -> None:
    """A profile in use costs one conditional request in 45 s; a packaged one is used if the bucket has none."""
    function = place.function()
    assert (function.find("prices"), function.find("packaged")) == (None, Found(OLD))
    place.put(OLD)
    assert function.find("prices") == Found(OLD)
    place.put(NEW)
    place.put(NEW, "packaged")
    before = place.requests
    assert [function.text(name) for _ in range(50) for name in ("prices", "packaged")] == [OLD] * 100
    assert place.requests == before
    place.now_s += READ_AGAIN_S
    assert [function.text(name) for _ in range(50) for name in ("prices", "packaged")] == [NEW] * 100
    assert place.requests == before + 2
    assert function.profile("prices:eur").address_for("prices:eur") == "https://example.org/new"
    place.put(OLD)
    function.forget("prices")
    assert function.text("prices") == OLD
    place.delete()
    place.now_s += READ_AGAIN_S
    with pytest.raises(InvalidRequest, match="there is no stream 'prices': no profile is named 'prices'"):
        function.profile("prices")
    assert (function.names(), place.warnings) == (["packaged"], [])


def test_an_invalid_profile_is_not_used(place: Place) -> None:
    """The last valid version stays in use, in a warm and in a cold function, until the next valid one."""
    place.put(OLD)
    warm = place.function()
    assert warm.find("prices") == Found(OLD)
    problem = f"the profile 'prices' in the bucket is wrong, and its former version is used: {REASON}"
    for wrong in (WRONG, WRONG + "# again\n"):
        place.put(wrong)
    place.now_s += READ_AGAIN_S
    for function in (warm, place.function()):
        found = function.find("prices")
        assert found is not None
        assert (found.text, found.problem[: len(problem)]) == (OLD, problem)
        assert function.profile("prices").address_for("prices") == "https://example.org/old"
    assert len(place.warnings) == 2
    place.put(NEW)
    place.now_s += READ_AGAIN_S
    assert warm.find("prices") == Found(NEW)
    assert warm.names() == ["packaged", "prices"]


def test_a_change_is_in_use_or_named_well_within_a_minute(place: Place) -> None:
    """A change is used, or reported as wrong, within 45 s, although the function has just read the object."""
    place.put(OLD)
    function = place.function()
    for text, noticed in ((OLD, OLD), (NEW, NEW), (WRONG, "is wrong")):
        place.put(text)
        changed_s = place.now_s
        while (found := function.find("prices")) is None or noticed not in found.text + found.problem:
            place.now_s += 1
            assert place.now_s - changed_s <= 45


def test_an_address_that_is_never_allowed_is_wrong(place: Place) -> None:
    """The metadata service's address, written as one number, is refused: the function would refuse each connection."""
    place.put(OLD)
    function = place.function()
    assert function.text("prices") == OLD
    place.put('address = "http://2852039166/latest"\nframing = "sse"\nallow_private = true\n')
    place.now_s += READ_AGAIN_S
    found = function.find("prices")
    assert found is not None
    assert (found.text, found.problem.rpartition(": ")[2]) == (
        OLD,
        "address leads to a link-local address, which is never allowed",
    )


@pytest.mark.parametrize(
    ("text", "reason"), [(WRONG, REASON), ("secret-value", "the profile 'prices' is not valid TOML")]
)
def test_a_profile_that_was_never_valid_is_refused_with_the_reason(place: Place, text: str, reason: str) -> None:
    """If there is no valid version, the stream is refused; a packaged file of the same name is used instead."""
    place.put(text)
    place.put(text, "packaged")
    function = place.function()
    with pytest.raises(InvalidRequest) as caught:
        function.profile("prices")
    assert str(caught.value).startswith(reason)
    assert function.text("packaged") == OLD
    assert "secret-value" not in str((caught.value, place.warnings))
    assert [said.split(":")[0] for said in place.warnings] == [
        "the profile 'prices' in the bucket is wrong, and it has no former version",
        "the profile 'packaged' in the bucket is wrong, and its former version is used",
    ]


def test_a_store_without_versions_has_no_former_profile(place: Place) -> None:
    """rclone's S3 lists no versions: a cold function refuses a wrong profile, or uses the packaged one."""
    place.put(WRONG)
    place.put(WRONG, "packaged")
    function, versions = place.function(), mock.Mock()
    function.versions = lambda: versions
    versions.list_object_versions.side_effect = ClientError({"Error": {"Code": "NotImplemented"}}, "ListObjectVersions")
    with pytest.raises(InvalidRequest, match="address is missing"):
        function.profile("prices")
    assert function.text("packaged") == OLD


@pytest.mark.parametrize("refusal", [SLOW_DOWN, ReadTimeoutError(endpoint_url="")], ids=["refused", "no answer"])
def test_an_outage_of_s3_changes_no_profile_and_no_request_is_repeated_at_once(
    place: Place, refusal: Exception
) -> None:
    """A known profile stays in use; a function that knows none raises StoreUnavailable and rejects no stream."""
    place.put(OLD)
    known, cold = place.function(), place.function()
    assert known.text("prices") == OLD
    place.now_s += READ_AGAIN_S
    place.fails = mock.Mock(side_effect=refusal)
    before = place.requests
    assert [known.text("prices") for _ in range(10)] == [OLD] * 10
    for name in ("prices", "other", "packaged"):
        with pytest.raises(StoreUnavailable):
            cold.profile(name)
    assert place.requests == before + 2
    place.fails = lambda: None
    place.now_s += READ_AGAIN_S
    assert (cold.text("prices"), known.text("prices")) == (OLD, OLD)
