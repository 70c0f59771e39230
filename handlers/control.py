"""The control API: shows a stream, its events or all streams, and records the request to stop one.

`handlers/api/routes.py` names the routes; the events are those of API Gateway's Lambda proxy. The client and the logger
are made once, at the cold start, where a bad environment fails it; what few requests need is imported by them, because
importing it would lengthen each cold start. Invariants: a GET writes nothing; a DELETE writes the stop request and
nothing else, so it may be repeated, and a redrive puts each event back once; no answer quotes what AWS said.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aws_lambda_powertools import Logger

from handlers.api import dead_letter_pages, event_pages, gaps, problems, routes, status, status_words, views
from handlers.api.answers import at, conditional, said, text_answer
from handlers.api.bill import cost
from handlers.api.connection_records import Connections, Records
from handlers.api.known_profiles import KnownProfiles
from handlers.api.last_error import Retries
from handlers.api.problems import Problem
from handlers.api.queries import BadQuery, PageRequest, is_dry_run, parameters_of
from handlers.aws import executions
from handlers.aws.clients import boto3_client, bucket, dynamodb, functions
from handlers.aws.lambda_environment import LambdaContext, plain_aws
from handlers.connection.inputs import Layout
from handlers.connection.lease import LEASE_TTL_READS, Lease
from handlers.errors import StoreUnavailable
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.repair.work import RepairWork
from handlers.run.profile_source import Profiles
from handlers.settings import ControlSettings
from handlers.store.event_reader import EventReader
from handlers.store.ledger_records import LedgerRecords
from handlers.store.overflow import Objects
from handlers.store.stream_records import StreamRecords

if TYPE_CHECKING:
    from handlers.api.parted import Parted

# To show and to stop a stream takes six requests at most, and the function has 20 seconds.
TRIES = 2
# After this time a page is answered as far as it has been read.
PAGE_S = 8
# API Gateway waits for 29 s. The next request continues a walk through the queue that ended early.
REDRIVE_S, REDRIVE_HELD_S, RECEIVED_WITHIN_S = 8, 30, 5
# After which time the page requests nothing more of the queue.
QUEUE_S = 6
# The Retry-After of an answer if DynamoDB throttles. Most throttling ends within seconds.
RETRY_AFTER_S = 5
STREAM = "/connections/{streamId}"
# The delivery answers a command in some ms, after a cold start of a second or two.
COMMAND_S = 10

Answer = dict[str, Any]

logger = Logger()
settings = ControlSettings.load(os.environ)


def _objects() -> Objects:
    return Objects(lambda: boto3_client("s3", TRIES), settings.events_bucket)


def _fetch(key: str) -> bytes | None:
    """Returns an object's bytes; None if it cannot be read: it may be gone for good, but the next events are not."""
    try:
        return _objects().get(key)
    except StoreUnavailable as error:
        logger.warning(str(error))
        return None


plain = plain_aws(os.environ)
client = dynamodb(plain, tries=TRIES)
profiles = Profiles(
    settings, functools.cache(lambda: bucket(plain, tries=TRIES)), lambda: boto3_client("s3", TRIES), logger.warning
)
known = KnownProfiles(profiles, settings)
store = StreamRecords(client, settings.control_table, settings.events_table)
reader = EventReader(client, settings.events_table, _fetch)
# The same as the manager's: a holder counts as dead after this many of its renewals have failed to come.
RENEWED_MS = max(settings.lease_every_ms, settings.progress_every_ms)
DEAD_AFTER_MS = LEASE_TTL_READS * RENEWED_MS
RETRIES = Retries(settings.retried_within_ms, settings.throttled_within_ms)
states = functools.partial(boto3_client, "stepfunctions", TRIES)
sqs = functools.partial(boto3_client, "sqs", TRIES)


class Asked(NamedTuple):
    """A request: its stream and the stream's profile, "" if the route has none; its query, and the proxy's event.

    `parts` are the ids of the streams in which the stream is read, none if it is connected itself.
    """

    stream_id: str
    profile: str
    query: object
    fields: Mapping[str, Any]
    parts: tuple[str, ...] = ()

    def header(self, name: str) -> str:
        """Returns the header with this name, in lower case; "" if the request has none."""
        return routes.read_header(self.fields, name)


def handler(event: object, lambda_context: LambdaContext) -> Answer:
    """Returns the answer for the Lambda proxy: 200 or 202 with a body, else a problem of handlers/api/problems.py.

    304: the client has the answer to its GET already; 400: the stream id or the query is malformed; 404: there is no
    such stream; 405: the route does not allow this method; 429: DynamoDB throttles; 503: DynamoDB does not answer.
    """
    fields = event if isinstance(event, Mapping) else {}
    method, stream_id = routes.read_event(event)
    api_request_id = routes.read_request_id(fields)
    logger.append_keys(request_id=lambda_context.aws_request_id, api_request_id=api_request_id)
    try:
        answer = _answer(method, stream_id, fields)
        return conditional(answer, routes.read_header(fields, "if-none-match")) if method == "GET" else answer
    except ProfileError as error:
        problem = Problem("bad-stream-id", str(error), "streamId")
    except BadQuery as error:
        problem = Problem("bad-query", str(error), error.field, error.fix)
    except StoreUnavailable as error:
        logger.error(str(error), extra={"stream_id": stream_id})
        problem = _of_store(error)
    except Problem as error:
        problem = error
    return said(problem.status, problem.body(api_request_id), problem.headers | {"Content-Type": problems.CONTENT_TYPE})


def _of_store(error: StoreUnavailable) -> Problem:
    """Returns the problem if the table did not answer, or has something that this version cannot read."""
    if error.is_unknown_layout:
        return Problem("unknown-layout", str(error))
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    if error.is_throttle:
        words = f"the table takes no more requests now; try again in {RETRY_AFTER_S} s"
        return Problem("throttled", words, headers=headers)
    return Problem("unavailable", "the table does not answer; try again", headers=headers)


def _answer(method: str, stream_id: str, fields: Mapping[str, Any]) -> Answer:
    """Returns the answer to the request; raises Problem, ProfileError, BadQuery and StoreUnavailable."""
    resource = str(fields.get("resource", STREAM))
    profile = check_stream_id(stream_id) if resource.startswith(STREAM) else ""
    route, parts = f"{method} {resource}", known.parts(stream_id) if profile else ()
    if route not in _ROUTES:
        raise routes.bad_method(method, resource)
    if parts and route not in _OF_PARTS:
        words = f"the stream {stream_id!r} is read in parts, each with its own answer: request {', '.join(parts)}"
        raise Problem("in-parts", words, "streamId")
    answer = (_ROUTES | _OF_PARTS)[route] if parts else _ROUTES[route]
    return answer(Asked(stream_id, profile, fields.get("queryStringParameters"), fields, parts))


def _openapi(asked: Asked) -> Answer:
    from handlers.api.openapi import document

    return said(200, document.document(routes.base(asked.fields)))


def _status(asked: Asked) -> Answer:
    """200 with the stream's status, what is wrong with its profile, and its sinks."""
    if asked.parts:
        answer = _parted().whole(asked.stream_id, asked.parts)
    else:
        records, keeps_ms = _records(asked), known.keeps_ms(asked.profile)
        answer = status.answer(asked.stream_id, records, _now_ms(), DEAD_AFTER_MS, RETRIES, keeps_ms=keeps_ms)
    if problem := known.problem(asked.profile):
        answer |= {"reason": answer["reason"] or problem, "profile_problem": problem}
    is_delivered = "deliver" in known.fields(asked.profile)
    rows = _rows(asked, _started(asked) if asked.parts and is_delivered else [asked.stream_id])
    return said(200, answer | ({"delivery": rows} if rows else {}))


def _fleet(asked: Asked, *, is_put: bool = False) -> Answer:
    """200 with how far the document is applied; a PUT first begins to apply its own."""
    from handlers.api import fleet_routes
    from handlers.fleet.fleet_records import FleetRecords

    is_dry = is_dry_run(parameters_of(asked.query, ("dry_run",)), "apply")
    records, now_ms = FleetRecords(client, settings.control_table, is_dry=is_dry), _now_ms()
    if not is_put:
        return said(200, fleet_routes.shown(records.read(), now_ms, is_dry=is_dry))
    wanted = fleet_routes.document(
        str(asked.fields.get("body") or ""), asked.header("content-type"), known.has, known.parts
    )
    return said(200, fleet_routes.put(records, wanted, states, settings.fleet_machine_arn, now_ms, is_dry=is_dry))


def _view(show: Callable[[str, Records], dict[str, Any]]) -> Callable[[Asked], Answer]:
    """200 with what `show` returns of a stream's records."""
    return lambda asked: said(200, show(asked.stream_id, _read(asked)))


def _read(asked: Asked) -> Records:
    """Returns the stream's records; raises StoreUnavailable for an unknown layout, which only the status shows."""
    records = _records(asked)
    if "layout" in records.damage:
        store.layout(asked.stream_id)
    return records


def _begun(stream_id: str) -> Records | None:
    """Returns the execution of a stream whose first POST was answered a moment ago; None if there is none."""
    with contextlib.suppress(StoreUnavailable):
        found = executions.begun(states(), settings.state_machine_arn, stream_id)
        return None if found is None else Records(Lease(execution=found[0], started_at_ms=found[1]), None, None, ())
    return None


def _records(asked: Asked) -> Records:
    """Returns the stream's records as they are."""
    records = store.read(asked.stream_id)
    if records is None and known.has(asked.profile):
        records = _begun(asked.stream_id)
    if records is None:
        raise known.problem_without(asked.stream_id, asked.profile)
    return records


def _layout(asked: Asked) -> Layout:
    layout = store.layout(asked.stream_id)
    if layout is None:
        raise known.problem_without(asked.stream_id, asked.profile)
    return layout


def _delivery(stream_id: str, profile: str) -> list[dict[str, Any]]:
    """Returns a row for each of the stream's sinks; none, without reading anything, if its profile names none."""
    if not settings.sinks_table or "deliver" not in known.fields(profile):
        return []
    from handlers.api.sinks import Sinks, row

    found = Sinks(client, settings.sinks_table).each(stream_id, known.sinks(profile))
    return [row(*one, _now_ms()) for one in found]


def _started(asked: Asked) -> list[str]:
    """Returns the stream, or those of its parts that were ever started; raises Problem if there is none."""
    if asked.parts:
        return _parted().started(asked.stream_id, asked.parts)
    _layout(asked)
    return [asked.stream_id]


def _rows(asked: Asked, streams: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row for each sink of these streams, which are the one that was requested or parts of it."""
    rows = [(one, row) for one in streams for row in _delivery(one, asked.profile)]
    return [({"stream": one} if asked.parts else {}) | row for one, row in rows]


def _sinks(asked: Asked) -> Answer:
    """200 with the stream's sinks, or with those of each of its parts."""
    return said(200, {"stream": asked.stream_id, "sinks": _rows(asked, _started(asked))})


def _command(asked: Asked) -> Answer:
    """200 with the stream's sinks, after one of them was given a command, in each part of a stream in parts."""
    streams = _started(asked)
    from handlers.api.sinks import command, commanded

    wanted = command(asked.query, known.sinks(asked.profile) if settings.sinks_function else (), _now_ms())
    if asked.parts and wanted["command"] == "skip" and not wanted["all"]:
        # The event that a sink refuses is in one part: the oldest of the others are events to be delivered.
        words = f"a single event is skipped in one part: request {', '.join(asked.parts)}; all=true skips in all"
        raise Problem("in-parts", words, "streamId")
    commanded(functions(plain, read_timeout_s=COMMAND_S), settings.sinks_function, streams, wanted)
    more = {"stream_id": asked.stream_id, "sink": wanted["sink"], "asked": wanted["command"]}
    logger.info("sink command requested", extra=more)
    return _sinks(asked)


def _lag_ms(stream_id: str) -> int | None:
    """Returns how far the slowest of the stream's sinks is behind; None if its profile names none."""
    return max((row["lag_ms"] for row in _delivery(stream_id, stream_id.partition(":")[0])), default=None)


def _streams(asked: Asked) -> Answer:
    """200 with a page of the streams that were ever started, as handlers/api/status.py builds it."""
    request, is_late = status.LISTING.read(asked.query), _late_after(PAGE_S)
    # One more than is shown, to know whether there is a next page.
    ids = store.streams(request.after, request.limit + 1)
    read = store.read_briefly(ids[: request.limit])
    page = status.page(ids, read, request.limit, _now_ms(), DEAD_AFTER_MS, RETRIES, is_late, _lag_ms)
    if any(map(known.parts, {row["stream"].partition(":")[0] for row in page["streams"]})):
        page["streams"] = _parted().listed(page["streams"], _lag_ms)
    return said(200, page)


def _events(asked: Asked) -> Answer:
    """200 with a page of events, as docs/store.md describes it, in the representation that the client accepts."""
    is_late = _late_after(PAGE_S)
    request = event_pages.LISTING.read(asked.query, asked.header("last-event-id"))
    kind = event_pages.representation(asked.header("accept"))
    if request.order and kind == event_pages.EVENT_STREAM:
        raise BadQuery("order", "an event stream is in order of arrival", "Leave order out, or ask for JSON.")

    def at_ms(event: Mapping[str, Any]) -> str:
        return str(event.get("happened_at") or event["received_at"])

    page = _paged(asked, request, "events", lambda one, part: _event_page(one, part, is_late), at_ms)
    headers, text = event_pages.answer(kind, page, request)
    return text_answer(200, text, headers)


def _paged(
    asked: Asked, request: PageRequest, kind: str, page: Callable[[Asked, PageRequest], dict[str, Any]],
    at: Callable[[Mapping[str, Any]], str],
) -> dict[str, Any]:  # fmt: skip
    """Returns the page of a stream, or the one that those of its parts come to."""
    if not asked.parts:
        return page(asked, request)

    def read(part_id: str, of_part: PageRequest) -> dict[str, Any]:
        return page(asked._replace(stream_id=part_id, parts=()), of_part)

    return _parted().page(asked.stream_id, asked.parts, request, kind, read, at)


def _event_page(asked: Asked, request: PageRequest, is_late: Callable[[], bool]) -> dict[str, Any]:
    """Returns a page of the events of a stream that is connected itself."""
    stream_id, layout = asked.stream_id, _layout(asked)
    event_pages.check_place(request.after, layout.order, by_time=bool(request.order))
    by_time, after, limit = None, request.after, request.limit
    if request.order:
        from handlers.api import own_order

        by_time, after, limit = own_order.time_of(known.text(asked.profile)), "", own_order.MOST + 1
    # A place was reached from the instant: the search for that, some ten reads in a log, is for the first page alone.
    begin = after or reader.place_at(stream_id, layout, request.from_ms)
    entries = reader.entries(stream_id, layout, _now_ms(), begin, limit, event_pages.BODY_BYTES)
    wanted = event_pages.within(entries, request, layout)
    if by_time is not None:
        return own_order.page(stream_id, wanted, request, by_time, is_late)
    return event_pages.page(stream_id, wanted, request.limit, is_late, order=layout.order)


def _gaps(asked: Asked) -> Answer:
    """200 with a page of gaps, as handlers/api/gaps.py builds it."""
    request = gaps.LISTING.read(asked.query)
    return said(200, _paged(asked, request, "gaps", _gap_page, lambda gap: str(gap["from_at"])))


def _gap_page(asked: Asked, request: PageRequest) -> dict[str, Any]:
    records = _read(asked)
    connections = Connections(records, _now_ms(), DEAD_AFTER_MS)
    written = store.gaps(asked.stream_id, gaps.sort_key(request.after), request.limit + 1)
    word = status_words.status(connections)
    return gaps.gap_page(asked.stream_id, word, connections, written, records.repairs, request)


def _parted() -> "Parted":
    """Returns what answers about streams that are read in parts; imported here, for few are."""
    from handlers.api.parted import Parted

    return Parted(store, known, _begun, _now_ms(), DEAD_AFTER_MS, RETRIES)


def _delete(asked: Asked) -> Answer:
    """202 once the stop request is recorded, with what follows from it; a stream that has stopped gets the same."""
    requested_at = at(_now_ms())
    assert requested_at is not None
    for stream_id in asked.parts or (asked.stream_id,):
        if store.stop(stream_id, requested_at, may_start=known.has(asked.profile)) is None:
            raise known.problem_without(stream_id, asked.profile)
        logger.info("stop requested", extra={"stream_id": stream_id})
    if asked.parts:
        stream = _parted().whole(asked.stream_id, asked.parts)
    else:
        stream = status.answer(asked.stream_id, _records(asked), _now_ms(), DEAD_AFTER_MS, RETRIES)
    names = ("stream", "status", "reason", "execution", "stop_requested_at", "ended_at", "holder")
    shown = {name: stream[name] for name in names}
    message = status_words.what_follows(stream, RENEWED_MS // 1000)
    if any(one["status"] == "stopping" for one in stream.get("parts", ())):
        message = "Each part stores what it has read and closes; its execution ends."
    return said(202, {**shown, "message": message})


def _redrive(asked: Asked) -> Answer:
    """200 with the outcomes of the stream's dead-letter messages."""
    if not asked.parts:
        _layout(asked)
    from handlers.redrive.redriving import Stage, redriven
    from handlers.redrive.restore import Events

    is_late, tables = _late_after(REDRIVE_S), boto3_client("dynamodb", TRIES)
    # A receive waits a second for messages. If its answer came too late, the second try would not get them: they are
    # hidden.
    stage = Stage(
        boto3_client("sqs", TRIES, RECEIVED_WITHIN_S), settings.dead_letter_queue_url, tables, settings.control_table,
        Events(tables, settings.events_table, _objects()), states(), "", REDRIVE_HELD_S, is_late,
    )  # fmt: skip
    return said(200, redriven(stage, asked.stream_id, asked.parts))


def _repair(asked: Asked) -> Answer:
    """200 with the gaps that are repaired now; with `dry_run=true`, what their repair would bring."""
    if not asked.parts:
        return said(200, _repaired(asked))
    every = [_repaired(asked._replace(stream_id=part_id, parts=())) for part_id in _started(asked)]
    gaps = [gap for one in every for gap in one["gaps"]]
    return said(200, {"stream": asked.stream_id, "is_dry_run": any(one["is_dry_run"] for one in every), "gaps": gaps})


def _repaired(asked: Asked) -> dict[str, Any]:
    _layout(asked)
    from handlers.api import repair_route

    if "repair" not in known.fields(asked.profile):
        raise repair_route.no_address(asked.profile)
    stage = repair_route.Stage(
        store, RepairWork(client, settings.control_table), LedgerRecords(client, settings.control_table, 0),
        lambda: boto3_client("lambda", 1, repair_route.DRY_RUN_S), settings.repair_function,
    )  # fmt: skip
    return repair_route.answer(stage, asked.stream_id, asked.query, _now_ms())


def _late_after(seconds: float) -> Callable[[], bool]:
    late_at_s = time.monotonic() + seconds
    return lambda: time.monotonic() > late_at_s


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _dead_letters(stream_id: str, _: Records | None, parts: Sequence[str] = ()) -> dict[str, Any]:
    messages, is_all = dead_letter_pages.received(sqs(), settings.dead_letter_queue_url, _late_after(QUEUE_S))
    return dead_letter_pages.page(stream_id, messages, is_all, parts)


def _latest(stream_id: str, parts: Sequence[str] = ()) -> dict[str, Any]:
    return views.latest(store, settings.events_table, stream_id, parts)


_ROUTES: dict[str, Callable[[Asked], Answer]] = {
    "GET /": lambda asked: routes.to_page(asked.fields) or said(200, routes.index(profiles.names())),
    "GET /openapi.json": _openapi,
    "GET /connections": _streams,
    "GET /console": lambda _: routes.console(routes.PAGE),
    "GET /console/{file}": lambda asked: routes.console(str((asked.fields.get("pathParameters") or {}).get("file"))),
    "GET /fleet": _fleet,
    "PUT /fleet": functools.partial(_fleet, is_put=True),
    f"GET {STREAM}": _status,
    f"DELETE {STREAM}": _delete,
    f"GET {STREAM}/events": _events,
    f"GET {STREAM}/gaps": _gaps,
    f"GET {STREAM}/sinks": _sinks,
    f"POST {STREAM}/sinks": _command,
    f"POST {STREAM}/redrive": _redrive,
    f"POST {STREAM}/repair": _repair,
    f"GET {STREAM}/timeline": _view(lambda one, records: views.timeline(one, records, _now_ms(), DEAD_AFTER_MS)),
    f"GET {STREAM}/machine": _view(functools.partial(views.newest_machine, states)),
    f"GET {STREAM}/cost": _view(lambda one, records: cost(one, records, _now_ms(), DEAD_AFTER_MS)),
    f"GET {STREAM}/dead-letters": _view(_dead_letters),
    f"GET {STREAM}/latest": _view(lambda one, _: _latest(one)),
}
# What is answered of a stream that is read in parts.
_OF_PARTS: dict[str, Callable[[Asked], Answer]] = {
    f"GET {STREAM}": _status,
    f"DELETE {STREAM}": _delete,
    f"GET {STREAM}/events": _events,
    f"GET {STREAM}/gaps": _gaps,
    f"GET {STREAM}/sinks": _sinks,
    f"POST {STREAM}/sinks": _command,
    f"POST {STREAM}/redrive": _redrive,
    f"POST {STREAM}/repair": _repair,
    f"GET {STREAM}/cost": lambda asked: said(200, _parted().cost(asked.stream_id, asked.parts)),
    f"GET {STREAM}/dead-letters": lambda asked: said(200, _dead_letters(asked.stream_id, None, asked.parts)),
    f"GET {STREAM}/latest": lambda asked: said(200, _latest(asked.stream_id, asked.parts)),
}
