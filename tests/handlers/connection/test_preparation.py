"""The requests before an opening, decided by a generator without sockets, clock and threads."""

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest

from handlers.connection.backoff import Refusal
from handlers.connection.effects import Outcome, Progress
from handlers.connection.failures import SOON_MS
from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import Answer, Ask, Call, Preparation, Tokens, Try, Unready
from handlers.connection.preparation import DEFAULT_LIFE_S, MOST_LIFE_S, is_token_refused, prepare_opening
from handlers.connection.steps import Report
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Reference
from handlers.profile.upstream_requests import UpstreamRequest
from tests.handlers.profile.profiles import EKS, TICKET, TOKEN, profile

SECRETS = {Reference("secret", "id"): "me & you", Reference("secret", "key"): "k:1"}
WHO, TICKETS = "the token server auth.example", "the ticket server api.example"


def token_answer(token: object = "t1", **more: Any) -> Answer:
    """Return a token server's answer."""
    fields = {"access_token": token, "token_type": "Bearer", "expires_in": 3600} | more
    return Answer(200, {}, json.dumps({name: value for name, value in fields.items() if value is not None}).encode())


class Play:
    """Servers that answer with the entries of `answers`, a clock, and the requests that were made."""

    def __init__(self, parsed: Profile | None = None) -> None:
        self.profile = parsed or profile(address="https://example.org/x", token=TOKEN)
        self.tokens = Tokens(contextlib.nullcontext)
        self.now_ms = 0
        self.asked: list[UpstreamRequest] = []

    def steps(self) -> Preparation:
        """Return the steps of an opening."""
        return prepare_opening(self.profile, "demo", None, SECRETS, self.tokens, lambda: self.now_ms)

    def authorizations(self, *answers: Answer | Closed | int) -> list[str]:
        """Return the Authorization of each try at the upstream; every answer is used up."""
        left, tried = list(answers), []
        steps = self.steps()
        step = next(steps)
        with contextlib.suppress(StopIteration):
            while True:
                if isinstance(step, Call):
                    step = steps.send(step.run())
                    continue
                if isinstance(step, Ask):
                    self.asked.append(step.request)
                    assert step.request.address.startswith(("https://auth", "https://api"))
                else:
                    assert isinstance(step, Try)
                    tried.append(step.request.headers.get("authorization", b"").decode())
                assert left, "it asks for more than is answered"
                assert isinstance(left[0], int) != isinstance(step, Ask), "it asks somebody else"
                step = steps.send(left.pop(0))
        assert left == []
        return tried

    def tries(self, *answers: Answer | Closed | int) -> list[str] | Closed:
        """Return the tries, or why the opening cannot be made."""
        try:
            return self.authorizations(*answers)
        except Unready as unready:
            return unready.closed

    def failure(self, *answers: Answer | Closed | int) -> Closed:
        """Return why the opening cannot be made."""
        with pytest.raises(Unready) as caught:
            self.authorizations(*answers)
        assert "k:1" not in repr(caught.value) + str(caught.value)
        return caught.value.closed


@pytest.mark.parametrize(
    ("more", "fields", "authorization"),
    [
        ({}, {"grant_type": "client_credentials"}, b"Basic bWUrJTI2K3lvdTprJTNBMQ=="),
        (
            {"scope": "a b", "audience": "https://x"},
            {"grant_type": "client_credentials", "scope": "a b", "audience": "https://x"},
            b"Basic bWUrJTI2K3lvdTprJTNBMQ==",
        ),
        ({"auth": "body"}, {"grant_type": "client_credentials", "client_id": "me & you", "client_secret": "k:1"}, None),
        (
            {"kind": "refresh_token", "secret": "", "refresh_token": "${secret:key}"},
            {"grant_type": "refresh_token", "refresh_token": "k:1", "client_id": "me & you"},
            None,
        ),
    ],
)
def test_the_token_request_is_that_of_rfc_6749(
    more: dict[str, Any], fields: dict[str, str], authorization: Any
) -> None:
    """A token is requested by a POST of a form; the client is in HTTP Basic, form-encoded, or in the body."""
    play = Play(profile(address="https://example.org/x", token=TOKEN | more))
    assert play.authorizations(token_answer(), 200) == ["Bearer t1"]
    (asked,) = play.asked
    assert (asked.method, asked.address) == ("POST", "https://auth.example/token")
    assert asked.headers["content-type"] == b"application/x-www-form-urlencoded"
    assert asked.headers.get("authorization") == authorization
    assert {name: value for name, (value,) in parse_qs((asked.body or b"").decode()).items()} == fields
    for secret in ("k:1", "k%3A1", "bWUrJTI2"):
        assert secret not in repr(asked)


def test_a_token_serves_until_shortly_before_it_expires() -> None:
    """A token of an hour is replaced a minute before it expires, a token of ten seconds a second before."""
    for lives_s, early_ms in ((3600, 60_000), (10, 1_000)):
        play = Play()
        assert play.authorizations(token_answer(expires_in=lives_s), 200) == ["Bearer t1"]
        play.now_ms = lives_s * 1000 - early_ms - 1
        assert play.authorizations(200) == ["Bearer t1"]
        play.now_ms += 1
        assert play.authorizations(token_answer("t2"), 200) == ["Bearer t2"]


def test_a_token_that_cannot_be_renewed_early_serves_until_it_expires() -> None:
    """The token server's outage affects the stream only once the token has expired."""
    play = Play()
    play.authorizations(token_answer(), 200)
    play.now_ms = 3_599_999
    assert play.tries(Answer(503, {}, b""), 200) == ["Bearer t1"]
    play.now_ms += 1
    assert play.failure(Answer(503, {}, b"")) == Closed("no_token", f"{WHO} answered 503")


@pytest.mark.parametrize(
    ("answer", "closed"),
    [
        (Answer(500, {}, b""), Closed("no_token", f"{WHO} answered 500")),
        (Answer(429, {}, b""), Closed("no_token", f"{WHO} answered 429")),
        (Answer(302, {}, b""), Closed("rejected", f"{WHO} answered 302")),
        (Answer(400, {}, b'{"error":"invalid_client","error_description":"k:1"}'),
         Closed("rejected", f"{WHO} answered 400: invalid_client")),
        (Answer(401, {}, b'{"error":"k:1"}'), Closed("rejected", f"{WHO} answered 401")),
        (Answer(403, {}, b'{"error":["invalid_client"]}'), Closed("rejected", f"{WHO} answered 403")),
        (Closed("stalled", "no byte came in time"), Closed("stalled", f"{WHO}: no byte came in time")),
        (Closed("rejected", "it redirects, which is not followed"),
         Closed("rejected", f"{WHO}: it redirects, which is not followed")),
        (Answer(200, {}, b"<html>"), Closed("no_token", f"{WHO} answered without a token that can be sent")),
        (Answer(200, {}, b"[" * 60_000), Closed("no_token", f"{WHO} answered without a token that can be sent")),
        (token_answer(""), Closed("no_token", f"{WHO} answered without a token that can be sent")),
        (token_answer("a\nb"), Closed("no_token", f"{WHO} answered without a token that can be sent")),
        (token_answer("x" * 8193), Closed("no_token", f"{WHO} answered without a token that can be sent")),
        (token_answer(7), Closed("no_token", f"{WHO} answered without a token that can be sent")),
        (token_answer(token_type="mac"),
         Closed("rejected", f"{WHO} answered with a token whose type is missing or not Bearer")),
        (token_answer(token_type=None),
         Closed("rejected", f"{WHO} answered with a token whose type is missing or not Bearer")),
    ],
)  # fmt: skip
def test_an_answer_without_a_usable_token_is_explained_without_secrets(answer: Answer | Closed, closed: Closed) -> None:
    """An unusable answer is reported with the server's host, its status and a code of RFC 6749, and no other word."""
    play = Play()
    assert play.failure(answer) == closed
    # Nothing of it is kept: the next opening requests a token again.
    assert play.authorizations(token_answer(), 200) == ["Bearer t1"]


@pytest.mark.parametrize(
    ("spelled", "lives_s"),
    [
        ("60", 60), (60, 60), (60.5, 60.5), (2**63 - 1, MOST_LIFE_S), (str(2**63 - 1), MOST_LIFE_S), (1e300,
        MOST_LIFE_S), *((unknown, DEFAULT_LIFE_S) for unknown in (None, 0, -1, True, "soon", [60], math.nan)),
    ],
)  # fmt: skip
def test_the_life_of_a_token_is_read_from_the_answer_or_assumed(spelled: Any, lives_s: float) -> None:
    """`expires_in` is a number, or digits as some servers write it; without a valid value a default holds."""
    play = Play()
    play.authorizations(token_answer(token_type="bearer", expires_in=spelled), 200)
    play.now_ms = round(1000 * lives_s) - 1
    assert play.tries(Answer(503, {}, b""), 200) == ["Bearer t1"]
    play.now_ms += 1
    assert play.authorizations(token_answer("t2"), 200) == ["Bearer t2"]


def test_after_a_401_a_token_is_requested_anew_once() -> None:
    """After a 401 a new token is tried at once, and kept if it is refused too. Other statuses renew none."""
    play = Play()
    assert [play.authorizations(token_answer(), 403), play.authorizations(503), play.authorizations(429)] == [
        ["Bearer t1"]
    ] * 3
    assert play.authorizations(401, token_answer("t2"), 401) == ["Bearer t1", "Bearer t2"]
    assert play.authorizations(401) == ["Bearer t2"]
    assert play.authorizations(401) == ["Bearer t2"]
    assert play.authorizations(200) == ["Bearer t2"]
    # The token was accepted since, so the next 401 renews it again.
    assert play.authorizations(401, token_answer("t3"), 200) == ["Bearer t2", "Bearer t3"]


def test_the_end_of_a_socket_shows_whether_its_token_was_accepted() -> None:
    """A token refused after the handshake is replaced once, until the new one has lasted or brought events."""
    play = Play(profile(address="wss://example.org/x", framing="websocket", key="$.n", token=TOKEN))

    def ends(token: str, open_ms: int, refusal: Refusal | None, stored: int = 0) -> bool:
        progress = Progress(1, 0, opened_ms=0, closed_ms=open_ms, stored=stored)
        report = Report(Outcome("StreamDropped", "", ""), progress, refusal=refusal)
        return is_token_refused(play.profile, SECRETS, play.tokens, token, report)

    refusal = Refusal(0, 300_000)
    play.authorizations(token_answer(), 101)
    assert ends("t1", 100, refusal)
    assert play.authorizations(token_answer("t2"), 101) == ["Bearer t2"]
    assert not ends("t2", 100, refusal)
    assert play.authorizations(101) == ["Bearer t2"]
    assert not ends("t2", SOON_MS, None)
    assert ends("t2", 100, refusal)
    assert ends("t2", 100, refusal), "another stream's end with the same token is the same news"
    assert play.authorizations(token_answer("t3"), 101) == ["Bearer t3"]
    assert [ends("t3", 100, refusal, stored) for stored in (0, 1)] == [False, True]


def test_a_token_of_eks_is_signed_when_it_is_due_and_once_after_a_401() -> None:
    """An EKS token serves 14 of its 15 minutes and needs no request; missing credentials are the reason given."""
    play, signed = Play(profile(address="https://example.org/x", token=EKS)), []

    def sign(cluster: str, region: str) -> tuple[str, int] | Closed:
        signed.append((cluster, region))
        return (f"k8s-aws-v1.{len(signed)}", 900_000) if len(signed) < 4 else Closed("no_token", "no credentials")

    assert play.profile.connect_timeout_ms == profile().connect_timeout_ms
    assert play.failure().detail == "there are no AWS credentials here to sign a token for EKS"
    play.tokens.sign = sign
    assert play.authorizations(200) == play.authorizations(200) == ["Bearer k8s-aws-v1.1"]
    play.now_ms = 840_000
    assert play.authorizations(200) == ["Bearer k8s-aws-v1.2"]
    assert play.authorizations(401, 401) == ["Bearer k8s-aws-v1.2", "Bearer k8s-aws-v1.3"]
    assert play.authorizations(401) == ["Bearer k8s-aws-v1.3"]
    assert (signed, play.asked) == ([("prod", "eu-central-1")] * 3, [])
    play.now_ms = 10_000_000
    assert play.failure() == Closed("no_token", "no credentials")


def test_a_token_that_another_stream_renewed_meanwhile_is_tried() -> None:
    """A stream whose token was refused tries the one that another stream got since, without a request."""
    play = Play()
    play.authorizations(token_answer(), 200)
    steps = play.steps()
    assert isinstance(next(steps), Try)
    assert play.authorizations(401, token_answer("t2"), 200) == ["Bearer t1", "Bearer t2"]
    again = steps.send(401)
    assert isinstance(again, Try)
    assert again.request.headers["authorization"] == b"Bearer t2"


def test_streams_that_come_together_request_one_token() -> None:
    """Streams that wait share the token, or the failure, that came meanwhile; later ones request again."""
    play = Play()
    results: list[Any] = []

    class Turn:
        """A turn before which other streams have had theirs."""

        def __init__(self) -> None:
            self.meanwhile: list[Callable[[], Any]] = []

        def __enter__(self) -> None:
            if self.meanwhile:
                results.append(self.meanwhile.pop()())

        def __exit__(self, *_: object) -> None:
            pass

    turn = Turn()
    play.tokens = Tokens(lambda: turn)
    turn.meanwhile.append(lambda: play.authorizations(token_answer(), 200))
    assert (play.authorizations(200), results, len(play.asked)) == (["Bearer t1"], [["Bearer t1"]], 1)
    play.now_ms = 4_000_000
    turn.meanwhile.append(lambda: play.failure(Answer(503, {}, b"")))
    down = Closed("no_token", f"{WHO} answered 503")
    assert (play.failure(), results[1], len(play.asked)) == (down, down, 2)
    play.now_ms += 1
    assert play.authorizations(token_answer("t2"), 200) == ["Bearer t2"]


def test_a_changed_secret_needs_another_token() -> None:
    """The key of the cache includes everything with which the token was requested."""
    play = Play()
    play.authorizations(token_answer(), 200)
    changed = {**SECRETS, Reference("secret", "key"): "k:2"}
    steps = prepare_opening(play.profile, "demo", None, changed, play.tokens, lambda: 0)
    assert isinstance(next(steps), Ask)


# --- the ticket -------------------------------------------------------------------------------------------------------


def profile_with_ticket(**more: Any) -> Profile:
    fields: dict[str, Any] = {"address": "https://example.org/{ticket}", "ticket": TICKET} | more
    return profile(**fields)


def test_each_opening_has_a_ticket_of_its_own() -> None:
    """A ticket is requested before each opening; the value at the path in its answer fills the address, encoded."""
    play = Play(profile_with_ticket())
    for key in ("k/1", 2):
        steps = play.steps()
        asked = next(steps)
        assert isinstance(asked, Ask)
        assert (asked.request.method, asked.request.address, asked.with_body) == ("POST", TICKET["address"], True)
        tried = steps.send(Answer(200, {}, json.dumps({"key": key}).encode()))
        assert isinstance(tried, Try)
        assert tried.request.address == f"https://example.org/{'k%2F1' if key == 'k/1' else key}"
        assert [(one.name, value) for one, value in tried.places.items()] == [("ticket", str(key))]


def test_a_header_of_the_answer_fills_a_header() -> None:
    """If the ticket is in a header, the answer's body is not read: it may be a stream itself, as MCP's is."""
    ticket = {
        "address": "https://api.example/mcp",
        "headers": {"Accept": "application/json, text/event-stream"},
        "body": '{"method":"initialize","params":{"name":"{streamId}"}}',
        "header": "Mcp-Session-Id",
    }
    headers = {"Mcp-Session-Id": "{ticket}"}
    steps = Play(profile(address="https://api.example/mcp", ticket=ticket, headers=headers)).steps()
    asked = next(steps)
    assert isinstance(asked, Ask)
    assert not asked.with_body
    assert asked.request.body == b'{"method":"initialize","params":{"name":"demo"}}'
    assert asked.request.headers["accept"] == b"application/json, text/event-stream"
    tried = steps.send(Answer(200, {"mcp-session-id": "s-1"}, b""))
    assert isinstance(tried, Try)
    assert tried.request.headers["mcp-session-id"] == b"s-1"


@pytest.mark.parametrize(
    ("answer", "closed"),
    [
        (Answer(503, {}, b""), Closed("no_ticket", f"{TICKETS} answered 503")),
        (Answer(404, {}, b""), Closed("rejected", f"{TICKETS} answered 404")),
        (Answer(401, {}, b""), Closed("rejected", f"{TICKETS} answered 401")),
        (Closed("refused", "nothing listens at the address"),
         Closed("refused", f"{TICKETS}: nothing listens at the address")),
        (Answer(200, {}, b"{}"), Closed("no_ticket", f"{TICKETS} answered with nothing at $.key that can be sent")),
        (Answer(200, {}, b'{"key":"a\\r\\nb"}'),
         Closed("no_ticket", f"{TICKETS} answered with nothing at $.key that can be sent")),
    ],
)  # fmt: skip
def test_a_missing_ticket_is_explained(answer: Answer | Closed, closed: Closed) -> None:
    """A ticket server that is down counts as an outage, a refusal as one that may pass."""
    assert Play(profile_with_ticket()).failure(answer) == closed


def test_a_ticket_is_requested_with_the_token() -> None:
    """A 401 of the ticket server renews the token once, as the upstream's does; each try has a new ticket."""
    play = Play(profile_with_ticket(token=TOKEN))
    key = Answer(200, {}, b'{"key":"k1"}')
    assert play.authorizations(token_answer(), Answer(401, {}, b""), token_answer("t2"), key, 200) == ["Bearer t2"]
    assert [one.headers.get("authorization") for one in play.asked[1::2]] == [b"Bearer t1", b"Bearer t2"]
    play.now_ms = 4_000_000
    asked = len(play.asked)
    assert play.authorizations(token_answer("t3"), key, 401, token_answer("t4"), key, 401) == ["Bearer t3", "Bearer t4"]
    assert len(play.asked) == asked + 4
    assert play.failure(Answer(401, {}, b"")) == Closed("rejected", f"{TICKETS} answered 401")
