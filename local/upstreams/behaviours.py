"""Describes how the demonstration streams and each provider that has a profile behave, as tables for `demo_streams`.

The rules are those that the profiles in env/streams/ name with their sources; times are the provider's own if it
publishes any. In a text, `<n>` is an event's number, `<at>` its instant, and `<at_ms>` the same in epoch milliseconds;
a text that is no event takes those of the last event. `<price>` rises and falls with the number. Invariant: a cursor
ends in the number of the event that it follows, or is that event's instant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from local.upstreams.socket_conversations import Conversation

INTERVAL_MS = 100
SSE, JSON = "text/event-stream", "application/json"
EVENT_STREAM_ERROR = (
    '{"errors": [{"title": "operational-disconnect", "disconnect_type": "UpstreamOperationalDisconnect"}]}\n'
)


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of one provider. Texts are as on the wire; "" means that the provider never sends such a text.

    `event`, `heartbeat` (sent in silence) and `greeting` (sent first) are texts. `loss_text` replaces every
    `loses_every`th event. The provider ends each connection after `ends_after_s` (0: never) and sends `last_text`
    before that. `eviction_text` is the last text if a newer connection evicts this one, and `ending` follows `length`
    events if the stream has an end. If it `resets`, each connection is reset at a random moment.

    `resume` is the header, query parameter or place in the body that holds the cursor. If it `is_inclusive`, the
    cursor's own event is sent again. If `is_cursor_instant`, the cursor is an instant, and events from then on are
    sent. `backfill` is how many of the last events a parameter requests, for a provider without a cursor. `expired` is
    the status or the text for a cursor that is too old; "" means that the oldest stored event follows.
    `confirming_header` is the header of the answer that repeats the cursor.

    `session` is the query parameter that separates connections besides the path. With a `session_header`, each POST is
    answered with a new session in this header, and a request to read must name one. `status` is the answer to every
    request, `retry_after_s` its Retry-After. If it `needs_token`, a request must have a token and a ticket. With a
    `conversation` the stream is a WebSocket, and each line is a message.
    """

    event: str
    media_type: str = JSON
    heartbeat: str = ""
    heartbeat_ms: int = 20_000
    interval_ms: int = INTERVAL_MS
    greeting: str = ""
    method: Literal["GET", "POST"] = "GET"
    has_key: bool = True
    resume: tuple[Literal["", "header", "query", "body"], str] = ("", "")
    is_inclusive: bool = False
    is_cursor_instant: bool = False
    backfill: int = 0
    expired: int | str = ""
    confirming_header: str = ""
    second_connection: Literal["serves", "evicts", "refuses"] = "serves"
    session: str = ""
    session_header: str = ""
    eviction_text: str = ""
    ends_after_s: float = 0
    resets: bool = False
    last_text: str = ""
    loss_text: str = ""
    loses_every: int = 0
    length: int = 0
    ending: str = ""
    status: int = 200
    retry_after_s: int = 0
    needs_token: bool = False
    conversation: Conversation | None = None


_RECORD = '{"n": <n>, "at_ms": <at_ms>, "text": "Event number <n>."}\n'
TRADE = '{"id": <n>, "at_ms": <at_ms>, "price": "100.<n>"}'
# The REST address of `demo-trades`: its path, its delay behind the stream, and the size of a page.
TRADES, TRADES_LATE_MS, TRADES_LIMIT = "/rest/demo-trades", 3_000, 100
_TICKS = Behaviour(
    media_type=SSE,
    event=f"id: <n>\nevent: tick\ndata: {_RECORD}\n",
    heartbeat=": heartbeat\n\n",
    has_key=False,
    resume=("header", "last-event-id"),
)
# The streams treat a second connection in different ways.
DEMOS: Mapping[str, Behaviour] = {
    "demo": replace(_TICKS, second_connection="evicts", greeting=": demo, one connection at a time\n\n"),
    "demo-exclusive": replace(
        _TICKS, second_connection="refuses", greeting=": demo-exclusive, a second connection is refused\n\n"
    ),
    "demo-token": replace(_TICKS, needs_token=True, greeting=": demo-token, a token and a ticket were good\n\n"),
    "demo-ndjson": replace(
        _TICKS, media_type="application/x-ndjson", event=_RECORD, heartbeat="\n", resume=("query", "since"), resets=True
    ),
    # A played exchange: it expects a channel first and a message every minute, and drops connections at random.
    "demo-socket": Behaviour(
        event='{"op": "trade", "n": <n>, "at_ms": <at_ms>, "price": <price>}\n',
        heartbeat='{"op": "heartbeat"}\n',
        has_key=False,
        resets=True,
        conversation=Conversation(
            first_message={"op": "subscribe"},
            answer='{"op": "subscribed", "channel": "<channel>"}',
            refusal='{"op": "error", "text": "the first message must be a subscribe with a channel"}',
            cursor_member="since",
            ping={"op": "ping"},
            pong='{"op": "pong"}',
            silent_s=60,
        ),
    ),
    # The stream cannot resume and drops connections; the REST address `TRADES` has all trades, a little later.
    "demo-trades": replace(
        _TICKS, media_type="application/x-ndjson", event=f"{TRADE}\n", heartbeat="\n", resume=("", ""), resets=True
    ),
}
BEHAVIOURS: Mapping[str, Behaviour] = {
    "alpaca": Behaviour(
        media_type=SSE,
        event='data: {"event_id": "01PLAYED<n>", "at": "<at>", "event": "fill", "qty": "1"}\n\n',
        heartbeat=": heartbeat\n\n",
        resume=("query", "since"),
        is_cursor_instant=True,
        loss_text=": you are reading too slowly, dropped 1 messages\n\n",
        loses_every=50,
        ends_after_s=900,
        last_text=": internal server error\n\n",
    ),
    "companies-house": Behaviour(
        event='{"resource_kind": "filing-history", "resource_uri": "/company/<n>", "event": {"timepoint": <n>}}\n',
        heartbeat="\n",
        heartbeat_ms=30_000,
        resume=("query", "timepoint"),
        is_inclusive=True,
        expired=416,
        ends_after_s=3600,
    ),
    "completions": Behaviour(
        media_type=SSE,
        method="POST",
        event='data: {"choices": [{"delta": {"content": "word <n> "}}]}\n\n',
        length=20,
        ending="data: [DONE]\n\n",
    ),
    "couchdb": Behaviour(
        event='{"seq": "<n>-played", "id": "document <n>", "changes": [{"rev": "1-a"}]}\n',
        heartbeat="\n",
        heartbeat_ms=1000,
        has_key=False,
        resume=("query", "since"),
        ends_after_s=60,
        last_text='{"last_seq": "<n>-played", "pending": 0}\n',
    ),
    "etcd": Behaviour(
        method="POST",
        greeting='{"result": {"header": {"revision": "<n>"}, "created": true}}\n',
        event='{"result": {"events": [{"kv": {"key": "Zm9v", "mod_revision": "<n>"}}]}}\n',
        heartbeat='{"result": {"header": {"revision": "<n>"}}}\n',
        heartbeat_ms=600_000,
        has_key=False,
        resume=("body", "/create_request/start_revision"),
        is_inclusive=True,
        expired='{"result": {"canceled": true, "compact_revision": "<n>"}}\n',
        ends_after_s=3600,
        last_text='{"error": {"grpc_code": 14, "message": "etcdserver: server stopped"}}\n',
    ),
    "kubernetes": Behaviour(
        event='{"type": "ADDED", "object": {"metadata": {"uid": "uid-<n>", "resourceVersion": "<n>"}}}\n',
        heartbeat='{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "<n>"}}}\n',
        heartbeat_ms=60_000,
        resume=("query", "resourceVersion"),
        expired='{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}\n',
        ends_after_s=1800,
    ),
    "mastodon": Behaviour(
        media_type=SSE,
        greeting=":)\n",
        event='event: update\ndata: {"id": "<n>", "content": "toot"}\n\n',
        heartbeat=":thump\n",
        heartbeat_ms=15_000,
    ),
    "mcp": Behaviour(
        media_type=SSE,
        greeting="id: 0\ndata:\n\n",
        event='id: <n>\ndata: {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "<n>"}}\n\n',
        heartbeat="id: <n>\ndata:\n\n",
        heartbeat_ms=15_000,
        has_key=False,
        session_header="Mcp-Session-Id",
    ),
    "mercure": Behaviour(
        media_type=SSE,
        greeting=":\n",
        event="id: urn:played:<n>\ndata: order <n>\n\n",
        heartbeat=":\n",
        heartbeat_ms=40_000,
        resume=("header", "Last-Event-ID"),
        confirming_header="Last-Event-ID",
        ends_after_s=595,
    ),
    "oanda": Behaviour(
        event='{"tick": {"instrument": "EUR_USD", "time": "<n>", "bid": 1.1, "ask": 1.2}}\n',
        heartbeat='{"heartbeat": {"time": "<n>"}}\n',
        heartbeat_ms=5_000,
        second_connection="evicts",
        session="sessionId",
        eviction_text='{"disconnect": {"code": 64, "message": "Session has been disconnected by a new connection"}}\n',
    ),
    "binance": Behaviour(
        event='{"e": "trade", "s": "BTCUSDT", "t": <n>, "p": "<price>", "q": "1"}\n',
        has_key=False,
        ends_after_s=86_400,
        conversation=Conversation(
            first_message={"method": "SUBSCRIBE"},
            answer='{"result": null, "id": 1}',
            refusal='{"code": 2, "msg": "Invalid request: missing field `method`", "id": 1}',
        ),
    ),
    "coinbase": Behaviour(
        event='{"type": "match", "trade_id": <n>, "product_id": "BTC-USD", "price": "<price>"}\n',
        heartbeat='{"type": "heartbeat", "product_id": "BTC-USD"}\n',
        heartbeat_ms=1_000,
        has_key=False,
        conversation=Conversation(
            first_message={"type": "subscribe"},
            answer='{"type": "subscriptions", "channels": []}',
            refusal='{"type": "error", "message": "Failed to subscribe", "reason": "no such product"}',
        ),
    ),
    "finnhub": Behaviour(
        event='{"type": "trade", "data": [{"s": "BINANCE:BTCUSDT", "p": 1, "t": <n>, "v": 1}]}\n',
        heartbeat='{"type": "ping"}\n',
        has_key=False,
        second_connection="refuses",
        conversation=Conversation(
            first_message={"type": "subscribe"}, refusal='{"type": "error", "msg": "Invalid type"}'
        ),
    ),
    "jetstream": Behaviour(
        event='{"did": "did:plc:a", "time_us": <n>, "kind": "commit", "commit": {"operation": "create", "rev": "r<n>", '
        '"collection": "app.bsky.feed.post", "rkey": "k<n>"}}\n',
        has_key=False,
        resume=("query", "cursor"),
        is_inclusive=True,
        conversation=Conversation(),
    ),
    "kraken": Behaviour(
        greeting='{"channel": "status", "type": "update", "data": [{"system": "online", "connection_id": <n>}]}\n',
        event='{"channel": "trade", "type": "update", "data": [{"symbol": "BTC/USD", "trade_id": <n>, "qty": 1}]}\n',
        heartbeat='{"channel": "heartbeat"}\n',
        heartbeat_ms=1_000,
        has_key=False,
        conversation=Conversation(
            first_message={"method": "subscribe"},
            answer='{"method": "subscribe", "success": true, "result": {"channel": "trade"}}',
            refusal='{"method": "subscribe", "success": false, "error": "Currency pair not supported"}',
            ping={"method": "ping"},
            pong='{"method": "pong"}',
            silent_s=60,
        ),
    ),
    "okx": Behaviour(
        event='{"arg": {"channel": "trades"}, "data": [{"instId": "BTC-USDT", "tradeId": "<n>", "px": "1"}]}\n',
        has_key=False,
        conversation=Conversation(
            first_message={"op": "subscribe"},
            answer='{"event": "subscribe", "arg": {"channel": "trades"}}',
            refusal='{"event": "error", "code": "60012", "msg": "Invalid request"}',
            silent_s=30,
        ),
    ),
    "responses": Behaviour(
        media_type=SSE,
        event='event: response.output_text.delta\ndata: {"sequence_number": <n>, "delta": "word "}\n\n',
        resume=("query", "starting_after"),
        ending='event: response.completed\ndata: {"sequence_number": <n>, "response": {"status": "completed"}}\n\n',
    ),
    "wikimedia": Behaviour(
        media_type=SSE,
        greeting=":ok\n\n",
        event='id: [{"topic":"codfw.mediawiki.recentchange","partition":0,"offset":<n>}]\n'
        'data: {"meta": {"id": "edit-<n>", "domain": "en.wikipedia.org"}}\n\n',
        heartbeat='id: [{"topic":"codfw.mediawiki.recentchange","partition":0,"offset":<n>}]\n'
        'data: {"meta": {"id": "canary-<n>", "domain": "canary"}}\n\n',
        has_key=False,
        resume=("header", "Last-Event-ID"),
        ends_after_s=900,
    ),
    "x-filtered": Behaviour(
        event='{"data": {"id": "<n>", "text": "post"}}\n',
        heartbeat="\r\n",
        resume=("query", "backfill_minutes"),
        backfill=100,
        second_connection="refuses",
        ends_after_s=3600,
        last_text=EVENT_STREAM_ERROR,
    ),
}
