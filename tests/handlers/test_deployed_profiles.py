"""A function gets a profile from the function that is deployed now: its request, and the other's answer."""

import io
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.run.deployed_profiles import answer_profile_request, read_profile, request_profile
from handlers.run.profile_source import Profiles
from handlers.settings import Settings
from tests.handlers.test_settings import environment

ARN = "arn:aws:lambda:eu-central-1:111111111111:function:manager:stable"
SOUND = """
address = "${UPSTREAM_PRICES}/{name}?key=${secret:prices}"
framing = "sse"
allow_private = true
"""


def profiles(folder: Path, **upstreams: str) -> Profiles:
    """Return the profiles of a function whose files are in `folder`, and that has no bucket."""
    settings = Settings.load(environment(folder.parent, STREAMS_DIR=str(folder), **upstreams))
    return Profiles(settings, mock.Mock(), mock.Mock(), mock.Mock())


class Functions:
    """Lambda, with a deployed function that has `profiles`."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self.invoked: list[str] = []

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        """Return the deployed function's answer."""
        self.invoked.append(FunctionName)
        return answer(answer_profile_request(json.loads(Payload), self._profiles))


def answer(said: object, **more: str) -> dict[str, Any]:
    return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(said).encode()), **more}


@pytest.fixture
def older(tmp_path: Path) -> Profiles:
    """Return a function without profiles and variables."""
    (tmp_path / "older").mkdir()
    return profiles(tmp_path / "older")


@pytest.fixture
def newer(tmp_path: Path) -> Profiles:
    """Return the function that is deployed now."""
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "prices.toml").write_text(SOUND)
    return profiles(tmp_path / "newer", UPSTREAM_PRICES="http://127.0.0.1:8080")


def test_a_profile_is_the_one_that_is_deployed(older: Profiles, newer: Profiles) -> None:
    """A profile comes with its variables from the deployed function, invoked by the requesting function's own ARN."""
    functions = Functions(newer)
    profile = request_profile(functions, ARN, "prices:eur", older)
    assert profile == read_profile("prices:eur", newer)
    assert profile.address_for("prices:eur").startswith("http://127.0.0.1:8080/eur?key=")
    assert functions.invoked == [ARN]


def test_the_answer_is_the_profiles_file(newer: Profiles) -> None:
    """The answer is the profile's file and its variables, so it contains names of secrets and no secret."""
    assert answer_profile_request({"profile": "prices"}, newer) == {
        "text": SOUND,
        "upstreams": {"UPSTREAM_PRICES": "http://127.0.0.1:8080"},
    }


@pytest.mark.parametrize("event", [None, [], "profile", {}, {"profile": None}, {"profile": 7}, {"Profile": "prices"}])
def test_any_other_event_gets_no_profile(newer: Profiles, event: object) -> None:
    """Only an event with a profile's name as a text gets a profile."""
    assert answer_profile_request(event, newer) is None


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Profiles:
    """Return a function without a profile; there is one beside its folder."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "none").mkdir()
    (folder / "prices.toml").write_text(SOUND)
    return profiles(folder / "none", UPSTREAM_PRICES="http://127.0.0.1:8080")


@given(st.text(max_size=300) | st.sampled_from(["../prices", "./../prices", "..", "prices/../../prices", "/prices"]))
def test_an_invalid_name_reads_no_other_file(beside: Profiles, name: str) -> None:
    """A name that is no profile of the function is reported as a problem, so no name reads another file."""
    assert set(answer_profile_request({"profile": name}, beside) or {}) == {"problem"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "there is no stream 'prices': no profile is named 'prices'"),
        ("address = secret-value", "the profile 'prices' is not valid TOML"),
        (b"address = '\xff'", "the profile 'prices' is not valid TOML"),
        ('framing = "sse"', "the profile 'prices': address is missing"),
    ],
)
def test_a_missing_or_invalid_profile_is_refused_with_its_reason(
    older: Profiles, newer: Profiles, text: str | bytes | None, problem: str
) -> None:
    """A missing or invalid profile raises InvalidRequest with the sentence of the deployed function."""
    path = newer.places.streams_dir / "prices.toml"
    path.unlink()
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InvalidRequest) as caught:
        request_profile(Functions(newer), ARN, "prices", older)
    assert str(caught.value).startswith(problem)
    assert "secret-value" not in str(caught.value)
    with pytest.raises(InvalidRequest) as own:
        read_profile("prices", newer)
    assert str(own.value) == str(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        answer({"errorType": "InvalidRequest", "errorMessage": "secret-value"}, FunctionError="Unhandled"),
        answer({"text": SOUND + "of_a_later_version = 1\n", "upstreams": {"UPSTREAM_PRICES": "http://127.0.0.1:1"}}),
        answer({"text": "secret-value", "upstreams": {}}),
        answer({"text": 7, "upstreams": {}}),
        answer({"status": "stopped"}),
        answer(None),
        ClientError({"Error": {"Code": "AccessDeniedException", "Message": "secret-value"}}, "Invoke"),
        ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "secret-value"}}, "Invoke"),
    ],
)
def test_an_answer_without_a_profile_rejects_no_stream(older: Profiles, said: Any) -> None:
    """If the deployed function fails or answers in another format, the stream waits and the answer is not quoted."""
    with pytest.raises(StoreUnavailable) as caught:
        request_profile(mock.Mock(**{"invoke.side_effect": [said]}), ARN, "prices:eur", older)
    assert "secret-value" not in str(caught.value)
