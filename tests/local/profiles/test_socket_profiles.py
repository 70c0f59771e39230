"""`profile new`, `profile try` and `profile check` of WebSockets, with the played exchange."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handlers.framing.frames import Frame
from handlers.framing.websocket import TEXT, encoded_frame
from local.cli import main
from local.profiles.address_probe import ProbedAddress, ProbeResult, find_answers
from local.upstreams.provider_player import serve_providers
from tests.handlers.servers import serving
from tests.handlers.upstream.test_hostile_sockets import switches
from tests.http_server import Answer, answering
from tests.local.profiles.test_new import make_profile

SAY = '{"op": "subscribe", "channel": "eur-usd"}'


@pytest.fixture(scope="module")
def exchange() -> Iterator[str]:
    with serve_providers({}) as (origin, _):
        yield f"ws{origin.removeprefix('http')}/demo-socket:eur-usd?interval_ms=20"


def test_the_profile_of_a_socket_has_the_first_message_and_its_answer(exchange: str, tmp_path: Path) -> None:
    """The profile has the first message, its answer, and the events' own number as the key; a trial reads it."""
    profile = make_profile(exchange, tmp_path, "--say", SAY, seconds="0.5")
    assert (profile["framing"], profile["key"], profile["allow_private"]) == ("websocket", "$.n", True)
    assert profile["subscribe"] == [
        {"send": {"op": "subscribe", "channel": "eur-usd"}, "expect": {"$.op": "subscribed"}}
    ]
    assert main(["profile", "try", str(tmp_path / "seen.toml"), "--seconds", "2"]) == 0


@pytest.mark.parametrize(
    ("provider", "say", "expect", "key"),
    [
        ("binance", {"method": "SUBSCRIBE", "params": ["btcusdt@trade"], "id": 1}, {"$.id": 1}, "$.t"),
        ("coinbase", {"type": "subscribe", "product_ids": ["BTC-USD"]}, {"$.type": "subscriptions"}, "$.trade_id"),
        ("kraken", {"method": "subscribe", "params": {"channel": "trade"}}, {"$.method": "subscribe"}, None),
        ("okx", {"op": "subscribe", "args": [{"channel": "trades"}]}, {"$.event": "subscribe"}, "$.data[*].tradeId"),
    ],
)
def test_an_answer_is_recognized_by_the_value_that_it_repeats(
    provider: str, say: dict[str, Any], expect: dict[str, Any], key: str | None, tmp_path: Path
) -> None:
    """If it repeats nothing, its own word counts, whatever the provider sent before. A key may lie in a batch."""
    with serve_providers() as (origin, _):
        address = f"ws{origin.removeprefix('http')}/{provider}/x"
        profile = make_profile(address, tmp_path, "--say", json.dumps(say))
    assert (profile["subscribe"], profile["key"]) == ([{"send": say, "expect": expect}], key or profile["key"])


def test_a_message_may_hold_a_secret(
    exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The secret is read from the stage and sent; the profile has its reference, even if the answer repeats it."""
    say = SAY.replace("eur-usd", "${secret:feed:channel}")
    given: dict[str, str] = {"SecretString": json.dumps({"channel": "s3cret-channel"}), "VersionId": "1"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with answering(lambda _: Answer(200, {}, json.dumps(given).encode())) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        profile = make_profile(exchange, tmp_path, "--say", say, seconds="0.5")
        given.clear()
        with pytest.raises(SystemExit) as ends:
            raise SystemExit(main(["profile", "new", exchange, "--say", say, "--output", "-"]))
    assert profile["subscribe"] == [{"send": json.loads(say), "expect": {"$.op": "subscribed"}}]
    assert "s3cret-channel" not in (tmp_path / "seen.toml").read_text(encoding="utf-8")
    assert ends.value.code == 2
    assert "Nothing was requested: " in capsys.readouterr().err


def test_each_answer_belongs_to_its_message() -> None:
    """An answer that repeats a later message does not belong to an earlier one, which then has no answer."""
    came: list[dict[str, Any]] = [{"é": "on", "event": "on", "channel": "eur-usd"}, {"n": 1}, {"n": 2}]
    seen = ProbeResult(frames=[Frame(json.dumps(one)) for one in came])
    assert find_answers(ProbedAddress("ws://x", first_messages=("hello", SAY)), seen) == [
        None,
        (0, '{ "$.event" = "on" }'),
    ]
    assert find_answers(ProbedAddress("ws://x", first_messages=("hello",)), seen) == [(0, '{ "$.event" = "on" }')]
    alike: list[Any] = [{"event": event, "channel": "eur-usd", "data": {}} for event in ("on", "trade", "trade")]
    for frames in (alike, [came[0], [7, 1], [7, 2]]):
        other = ProbeResult(frames=[Frame(json.dumps(one)) for one in frames])
        assert find_answers(ProbedAddress("ws://x", first_messages=(SAY,)), other) == [(0, '{ "$.event" = "on" }')]
    rpc = ProbeResult(frames=[Frame('{"jsonrpc": "2.0", "result": {}, "id": 1}'), *seen.frames[1:]])
    assert find_answers(ProbedAddress("ws://x", first_messages=('{"jsonrpc": "2.0", "id": 1}',)), rpc) == [
        (0, '{ "$.id" = 1 }')
    ]
    seen.secrets = ("on",)
    assert find_answers(ProbedAddress("ws://x", first_messages=("hello", SAY)), seen) == [
        None,
        (0, '{ "$.channel" = "eur-usd" }'),
    ]


def test_the_first_message_is_asked_for_on_a_terminal_only(
    exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the command asks for it if no frame came; elsewhere the profile says that none was sent."""
    assert "subscribe" not in make_profile(exchange, tmp_path, "--name", "silent", seconds="0.5")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: "")
    assert "subscribe" not in make_profile(exchange, tmp_path, "--name", "ended", seconds="0.5")
    monkeypatch.setattr("builtins.input", lambda _prompt: SAY)
    assert make_profile(exchange, tmp_path, seconds="0.5")["subscribe"][0]["send"]["op"] == "subscribe"


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["/nothing"], 1, "the answer is 403, not a WebSocket"),
        (["/demo"], 1, "the answer is 426, not a WebSocket"),
        (["http", "--say", "x"], 2, "--say is only for ws:// and wss:// addresses"),
    ],
)
def test_an_address_that_is_no_websocket_is_refused(
    exchange: str, arguments: list[str], status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names what answered, and does not mention a credential, which no server required."""
    place, *more = arguments
    origin = exchange.rpartition("/")[0]
    url = origin + place if place.startswith("/") else exchange.replace("ws", "http", 1)
    assert main(["profile", "new", url, "--seconds", "2", "--output", "-", *more]) == status
    said = capsys.readouterr().err
    assert sentence in said
    assert "credential" not in said


def test_no_profile_is_written_for_socket_io(capsys: pytest.CaptureFixture[str]) -> None:
    """Socket.IO is recognized by its first message, and the sentence names the page that says what to do."""
    with serving(switches(encoded_frame(TEXT, b'0{"sid":"x","upgrades":[]}'))) as server:
        assert main(["profile", "new", server.address.replace("http", "ws", 1), "--seconds", "1", "--output", "-"]) == 1
    assert "it is Socket.IO's, which is not read: docs/not-read.md says what to do" in capsys.readouterr().err


def test_a_trial_says_why_a_message_was_refused(
    exchange: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trial prints the exchange's words, the message without an answer, and that the message sends the cursor."""
    file = tmp_path / "seen.toml"
    lines = [f'address = "{exchange}"', "allow_private = true", 'framing = "websocket"', 'cursor = "$.n"']
    says = 'subscribe = {{ send = {{ op = "{}", since = "{{cursor}}" }}, expect = {{ "$.op" = "subscribed" }}, {} }}'
    refuses = 'refuse = { "$.op" = "error" }, reason = "$.text"'
    file.write_text("\n".join([*lines, says.format("hello", refuses)]))
    assert main(["profile", "try", str(file), "--seconds", "5"]) == 1
    why = "refused: the upstream refused subscribe[0]: the first message must be a subscribe with a channel"
    assert why in capsys.readouterr().out
    file.write_text("\n".join([*lines, says.format("subscribe", refuses).replace('"subscribed"', '"taken"')]))
    assert main(["profile", "try", str(file), "--seconds", "1"]) == 1
    assert "still no answer to subscribe[0]; it said {" in capsys.readouterr().out
    file.write_text("\n".join([*lines, says.format("subscribe", refuses)]))
    assert main(["profile", "try", str(file), "--seconds", "1", "--cursor", "1"]) == 0
    shown = capsys.readouterr().out
    assert "resumes with $.n in a message (subscribe)" in shown
    assert "answer     {" in shown


def test_a_trial_fills_the_ticket_into_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first message of a trial contains the ticket that the ticket's server answered, as a function's does."""
    with serve_providers() as (origin, _):
        file = tmp_path / "tickets.toml"
        file.write_text(
            f'address = "ws{origin.removeprefix("http")}/demo-socket:x"\nallow_private = true\n'
            f'framing = "websocket"\nticket = {{ address = "{origin}/mcp/mcp", header = "Mcp-Session-Id" }}\n'
            'subscribe = { send = { op = "subscribe", channel = "{ticket}" }, expect = { "$.op" = "subscribed" } }\n'
        )
        assert main(["profile", "try", str(file), "--seconds", "2"]) == 0
    assert '"channel": "session-0"' in capsys.readouterr().out
