"""A profile's socket fields: refusals by name, the handshake, and the text of a message."""

import json
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from handlers.profile.behaviour import Profile
from handlers.profile.checked_fields import BadProfile
from handlers.profile.parse import parse
from handlers.profile.resume import BY_MESSAGE
from handlers.profile.secret_references import Reference, hide_secrets
from handlers.profile.upstream_requests import message_of, request_of

SUBSCRIBE = {"send": {"op": "subscribe", "since": "{cursor}"}, "expect": {"$.op": "subscribed"}}


def profile(**fields: Any) -> Profile:
    table = {"address": "wss://feed.example/{name}?v=1", "framing": "websocket", **fields}
    return parse("feed", {name: value for name, value in table.items() if value is not None}, {})


PATH = 'must be a JSON path such as "$.meta.id" or "$.items[0]"'
ALONE = 'works only with framing = "websocket": over HTTP nothing can be sent while the stream is read'
MISSING = "is missing: it must be a text, or a table or list that is sent as JSON"
CODE = (
    "must be a close code: 1000 to 1003, 1005, 1007 to 1014 or 3000 to 4999, with one of these values: retried, "
    "throttled, rejected, ended, expired"
)
ELEMENT = '; "[*]" stands for an element of the list that split names'
UNFILLED = 'must contain no placeholder and no reference to a secret, which nothing fills in there; in json, "*" is any'


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        *(
            ({"framing": "sse"} | more, 'framing must be "websocket" if the address begins with ws:// or wss://')
            for more in ({}, {"address": "WSS://a.example/"})
        ),
        *(
            ({"address": "https://a.example/", "framing": "ndjson", **more}, f"{next(iter(more))} {ALONE}")
            for more in (
                {"subscribe": [{"send": "hi"}]},
                {"ping": {"every_s": 20}},
                {"leave": {"send": "bye"}},
                {"close_codes": {"4000": "retried"}},
                {"snapshot": {"json": {"$.a": 1}}},
            )
        ),
        ({"method": "POST"}, 'method must be "GET" with framing = "websocket": the handshake is a GET without a body'),
        ({"resume": {"body": "/a"}, "cursor": "$.n"}, "resume.body needs the field body: it names a place in the body"),
        ({"headers": {"Sec-WebSocket-Key": "a"}},
         "headers.Sec-WebSocket-Key is not the name of an HTTP header that may be set"),
        ({"subscribe": []}, "subscribe must have from 1 to 100 messages"),
        ({"subscribe": ["a"]},
         'subscribe[0] must be [{ send = { op = "subscribe" }, expect = { "$.op" = "subscribed" } }]'),
        ({"subscribe": [{}]}, f"subscribe[0].send {MISSING}"),
        ({"subscribe": {"send": 7}},
         "subscribe.send must be a text, or a table or list that JSON can express: no dates, no infinite numbers"),
        ({"subscribe": {"send": "a", "expcet": "b"}},
         "subscribe.expcet is not a field of subscribe: send, expect, refuse, reason, within_s; did you mean "
         "expect?"),
        ({"subscribe": {"send": "a", "refuse": "b"}}, "subscribe.refuse needs expect: without it no answer is awaited"),
        ({"subscribe": {"send": "a", "expect": "b", "reason": "$.a"}},
         "subscribe.reason needs refuse: the marks of the message that contains it"),
        ({"subscribe": {"send": {"token": "abc"}}},
         "subscribe.send contains 'token' in plain text; put the secret into Secrets Manager and write "
         "${secret:name}"),
        ({"subscribe": {"send": "${env:x}"}},
         "subscribe.send contains ${...} that is not a reference to a secret; write ${secret:name}, "
         "${secret:name:field} or ${ssm:name}"),
        ({"subscribe": {"send": "a", "expect": "b", "within_s": 0}},
         "subscribe.within_s must be a number of seconds above 0 and at most 60"),
        ({"ping": "ping"}, 'ping must be { send = { op = "ping" }, every_s = 20 }'),
        ({"ping": {"send": "a"}}, "ping.every_s is missing: it must be a number of seconds above 0 and at most 3600"),
        ({"ping": {"every_s": 0}}, "ping.every_s must be a number of seconds above 0 and at most 3600"),
        ({"ping": {"every_s": 1, "answer": "b"}},
         "ping.answer needs send: without it the protocol's own ping is sent, which a pong answers"),
        ({"reply": {"send": "a"}},
         'reply.to must be the mark of the message to answer: { "$.op" = "ping" }, a text, or a list of such'),
        ({"reply": [{"to": "a", "send": {"id": "{$.i d}"}}]},
         "reply[0].send contains {$.i d}, which is not a JSON path such as {$.id}"),
        ({"subscribe": {"send": "{$.id}"}},
         "subscribe.send contains {$.id}: only a reply may hold a part of the message that it answers"),
        ({"leave": {}}, f"leave.send {MISSING}"),
        *(
            ({"close_codes": {code: "retried"}}, f"close_codes.{code} {CODE}")
            for code in ("999", "1006", "1015", "2000")
        ),
        *(
            ({"subscribe": {"send": "a", "expect": {"$.a": text}, "refuse": "b"}}, f"subscribe.expect {UNFILLED} value")
            for text in ("of {name}", "{cursor|text}", "{ticket.id}", "${secret:key}")
        ),
        ({"snapshot": {"$.a": "{streamId}"}}, f"snapshot {UNFILLED} value"),
        ({"close_codes": {"4000": "reject"}}, f"close_codes.4000 {CODE}; did you mean rejected?"),
        ({"sequence": "seq"}, f'sequence {PATH}, or {{ path = "$.seq", by = "$.product" }}'),
        ({"sequence": {"by": "$.a"}}, f"sequence.path is missing: it {PATH}"),
        ({"sequence": {"path": "$.d[*].n"}}, f"sequence.path {PATH}{ELEMENT}"),
        ({"sequence": {"path": "$.a", "by": "$.a"}},
         "sequence.by must be another path than path, or no row would have two numbers"),
        ({"subscribe": [SUBSCRIBE], "cursor": "$.n", "resume": {"query": "a"}},
         'resume.query must be left out: a message contains "{cursor}", which resumes already'),
        ({"subscribe": [SUBSCRIBE]}, 'resume needs cursor = "$...", the place to resume from, unless framing is "sse"'),
        ({"ping": {"every_s": True}}, "ping.every_s must be a number of seconds above 0 and at most 3600"),
        ({"time": "at"}, f"time {PATH}, within the stored event, which of a batch is an element"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], sentence: str) -> None:
    """One sentence names a valid value; a wrong value does not also count as missing."""
    with pytest.raises(BadProfile) as caught:
        profile(**fields)
    assert caught.value.problems == (f"the profile 'feed': {sentence}",)


def test_the_handshake_is_a_request() -> None:
    """The handshake is RFC 6455's request without the key, which each connection makes; it may have secrets."""
    said = profile(headers={"Authorization": "Bearer ${secret:key}"}, compression=True)
    request = request_of(said, "feed:EUR/USD", None, {Reference("secret", "key"): "s3cret"})
    assert (request.method, request.address, request.is_upgrade) == ("GET", "https://feed.example/EUR%2FUSD?v=1", True)
    upgrade = {"upgrade": b"websocket", "connection": b"Upgrade", "sec-websocket-version": b"13"}
    ours = {"user-agent": b"streamkeeper", "sec-websocket-extensions": b"permessage-deflate"}
    assert request.headers == upgrade | ours | {"authorization": b"Bearer s3cret"}
    plain = profile(address="ws://a.example/", compression=None)
    assert not request_of(plain, "feed", None).address.startswith("https")


def test_the_cursor_may_stand_in_the_address_or_a_message() -> None:
    """`resume` names the cursor's place in the handshake; if a message contains the cursor, it is sent there."""
    by_query = profile(cursor="$.n", resume={"query": "cursor"})
    assert request_of(by_query, "feed:a", "7").address == "https://feed.example/a?v=1&cursor=7"
    by_message = profile(cursor="$.n", subscribe=[SUBSCRIBE])
    assert by_message.resume == BY_MESSAGE
    assert by_message.is_resumption("7")
    assert request_of(by_message, "feed:a", "7").address == "https://feed.example/a?v=1"
    assert profile(cursor="$.n").resume is None


def test_a_value_is_filled_in_once() -> None:
    """The text of a secret, a stream's name or a cursor stays unchanged, even if it looks like a placeholder."""
    said = profile(
        cursor="$.n", subscribe=[{"send": {"a": "${secret:key}|{name}|{cursor|text}", "b": [1, True, None]}}]
    )
    spelled = message_of(
        said, said.subscribe[0].send, "feed:${secret:key}{cursor}", "{name}", {Reference("secret", "key"): "{name}"}
    )
    assert spelled == b'{"a":"{name}|${secret:key}{cursor}|{name}","b":[1,true,null]}'
    assert message_of(said, "GO {cursor}|{name}", "feed:x", None, {}) == b"GO |x"
    assert [one.kept_in for one in said.secrets] == ["secret"]
    assert said.address_for("feed:x")


def test_a_secret_is_recognized_as_an_upstream_spells_it() -> None:
    """A secret is hidden with the escapes of JSON, of addresses or of HTML, or cut off at a close's 123 bytes."""
    secret = 'a/b"c%2B é+d '
    spelled = json.dumps(secret)
    ways = [spelled, spelled.replace("/", r"\/"), json.dumps({"in": json.dumps(secret, ensure_ascii=False)})]
    ways += [f"<b>{escape(secret)}</b>", quote(secret), f"?k={quote_plus(secret)}&", secret[:9]]
    assert [hide_secrets(f"no such key: {way}", [secret]) for way in ways] == ["…"] * len(ways)
    assert hide_secrets(f"no such key: {secret}, {secret[:7]}", ["", secret]) == f"no such key: …, {secret[:7]}"
