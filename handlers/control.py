"""The control API: shows a stream, its events or all streams, and records the request to stop one.

`handlers/api/routes.py` names the routes; the events are those of API Gateway's Lambda proxy. The client and the logger
are made once, at the cold start, where a bad environment fails it. Invariants: a GET writes nothing; a DELETE writes
the stop request and nothing else, so it may be repeated, and a redrive puts each event back once; no answer quotes what
AWS said.
"""

import contextlib
import functools
import os
import time
from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools import Logger

from handlers.api import event_pages, gaps, problems, routes, status, status_words
from handlers.api.answers import at, conditional, said, text_answer
from handlers.api.connection_records import Connections, Records
from handlers.api.known_profiles import KnownProfiles
from handlers.api.last_error import Retries
from handlers.api.problems import Problem
from handlers.api.queries import BadQuery, PageRequest
from handlers.api.views import Views
from handlers.aws import executions
from handlers.aws.clients import boto3_client, bucket, dynamodb, functions
from handlers.connection.inputs import Layout
from handlers.connection.lease import LEASE_TTL_READS, Lease
from handlers.errors import StoreUnavailable
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.repair.work import RepairWork
from handlers.run.profile_source import Profiles
from handlers.settings import ControlSettings, LambdaContext, plain_aws
from handlers.store.event_reader import EventReader
from handlers.store.ledger_records import LedgerRecords
from handlers.store.overflow import Objects
from handlers.store.stream_records import StreamRecords

# To show and to stop a stream takes six requests at most, and the function has 20 seconds.
TRIES = 2
# A page is answered as far as it is after this time.
PAGE_S = 8
# API Gateway waits for 29 s. A walk through the queue that ends early is gone on with by the next request.
REDRIVE_S, REDRIVE_HELD_S = 8, 30
# How long a caller is to wait where DynamoDB does not answer, or throttles; that is over within seconds, or is not.
RETRY_AFTER_S = 5
STREAM, EVENTS, GAPS, REDRIVE = "/connections/{streamId}", "/events", "/gaps", "/redrive"
REPAIR = "/repair"
SINKS = f"{STREAM}/sinks"
# The delivery answers a command in some ms, after a cold start of a second or two.
COMMAND_S = 10

Answer = dict[str, Any]

logger = Logger()
settings = ControlSettings.load(os.environ)


def _objects() -> Objects:
    return Objects(lambda: boto3_client("s3", TRIES), settings.events_bucket)


def _fetch(key: str) -> bytes | None:
    """Returns an object's bytes; None where it cannot be read: it may be gone for good, but the next events are not."""
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
views = Views(
    lambda: boto3_client("stepfunctions", TRIES), lambda: boto3_client("sqs", TRIES), settings.dead_letter_queue_url,
    DEAD_AFTER_MS, store, settings.events_table,
)  # fmt: skip


def handler(event: object, lambda_context: LambdaContext) -> Answer:
    """Returns the answer for the Lambda proxy: 200 or 202 with a body, else a problem of handlers/api/problems.py.

    304: the client has the answer to its GET already; 400: the stream id or the query is malformed; 404: there is no
    such stream; 405: another method; 429: DynamoDB throttles; 503: it does not answer.
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
    """Returns the problem where the table did not answer, or had what this version cannot read."""
    if error.is_unknown_layout:
        return Problem("unknown-layout", str(error))
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    if error.is_throttle:
        words = f"the table takes no more requests now; try again in {RETRY_AFTER_S} s"
        return Problem("throttled", words, headers=headers)
    return Problem("unavailable", "the table does not answer; try again", headers=headers)


def _answer(method: str, stream_id: str, fields: Mapping[str, Any]) -> Answer:
    """Returns the answer to the request; raises Problem, ProfileError, BadQuery and StoreUnavailable."""
    resource, query = str(fields.get("resource", STREAM)), fields.get("queryStringParameters")
    profile = check_stream_id(stream_id) if resource.startswith(STREAM) else ""
    if method == "DELETE" and resource == STREAM:
        return _delete(stream_id, profile)
    if method == "POST" and resource == f"{STREAM}{REDRIVE}":
        return _redrive(stream_id, profile)
    if method == "POST" and resource == f"{STREAM}{REPAIR}":
        return _repair(stream_id, profile, query)
    if method == "POST" and resource == SINKS:
        return _command(stream_id, profile, query)
    if f"{method} {resource}" not in routes.ROUTES:
        raise routes.bad_method(method, resource)
    if resource == routes.INDEX:
        return routes.to_page(fields) or said(200, routes.index(profiles.names()))
    if resource == routes.OPENAPI:
        # Few ask for it, and what is imported lengthens each cold start.
        from handlers.api.openapi import document

        return said(200, document.document(routes.base(fields)))
    if resource == routes.ALL:
        return _streams(status.LISTING.read(query))
    if resource == routes.FLEET:
        return _fleet(method, query, fields)
    if resource.startswith(routes.CONSOLE):
        return routes.console(resource, fields.get("pathParameters"))
    view = resource.rpartition("/")[2]
    if view in views.by_name:
        return said(200, views.by_name[view](stream_id, _read(stream_id, profile), _now_ms()))
    if resource.endswith(EVENTS):
        accept, last_event_id = (routes.read_header(fields, name) for name in ("accept", "last-event-id"))
        request = event_pages.LISTING.read(query, last_event_id)
        return _events(stream_id, profile, request, event_pages.representation(accept))
    if resource == SINKS:
        _layout(stream_id, profile)
        return _sinks(stream_id, profile)
    if resource.endswith(GAPS):
        return _gaps(stream_id, profile, gaps.LISTING.read(query))
    records, keeps_ms = _records(stream_id, profile), known.keeps_ms(profile)
    answer = status.answer(stream_id, records, _now_ms(), DEAD_AFTER_MS, RETRIES, keeps_ms=keeps_ms)
    if problem := known.problem(profile):
        answer |= {"reason": answer["reason"] or problem, "profile_problem": problem}
    return said(200, answer | _delivery(stream_id, profile))


def _fleet(method: str, query: object, fields: Mapping[str, Any]) -> Answer:
    """200 with how far the document is that is applied, from now on where it is a PUT."""
    # Few ask for it, and what is imported lengthens each cold start.
    from handlers.api import fleet_routes
    from handlers.fleet.fleet_records import FleetRecords

    is_dry = fleet_routes.query(query)
    records = FleetRecords(client, settings.control_table, is_dry=is_dry)
    if method == "GET":
        return said(200, fleet_routes.shown(records.read(), _now_ms(), is_dry=is_dry))
    stage = fleet_routes.Stage(
        records,
        lambda: boto3_client("stepfunctions", TRIES),
        settings.fleet_machine_arn,
        known.has,
        _now_ms(),
    )
    kind = routes.read_header(fields, "content-type")
    return said(200, fleet_routes.put(stage, str(fields.get("body") or ""), kind, is_dry=is_dry))


def _read(stream_id: str, profile: str) -> Records:
    """Returns the stream's records; raises StoreUnavailable for an unknown layout, which only a status can show."""
    records = _records(stream_id, profile)
    if "layout" in records.damage:
        store.layout(stream_id)
    return records


def _begun(stream_id: str) -> Records | None:
    """Returns what is known of a stream whose first POST was answered a moment ago; None if there was none."""
    with contextlib.suppress(StoreUnavailable):
        found = executions.begun(boto3_client("stepfunctions", TRIES), settings.state_machine_arn, stream_id)
        return None if found is None else Records(Lease(execution=found[0], started_at_ms=found[1]), None, None, ())
    return None


def _records(stream_id: str, profile: str) -> Records:
    """Returns the stream's records as they are."""
    records = store.read(stream_id)
    if records is None and known.has(profile):
        records = _begun(stream_id)
    if records is None:
        raise known.problem_without(stream_id, profile)
    return records


def _layout(stream_id: str, profile: str) -> Layout:
    layout = store.layout(stream_id)
    if layout is None:
        raise known.problem_without(stream_id, profile)
    return layout


def _delivery(stream_id: str, profile: str) -> dict[str, Any]:
    """Returns what is known of the stream's sinks; nothing is read where its profile names none."""
    if not settings.sinks_table or "deliver" not in known.fields(profile):
        return {}
    # Few profiles deliver, and what is imported lengthens each cold start.
    from handlers.api.sinks import Sinks, row

    found = Sinks(client, settings.sinks_table).each(stream_id, known.sinks(profile))
    return {"delivery": [row(*one, _now_ms()) for one in found]}


def _command(stream_id: str, profile: str, query: object) -> Answer:
    """200 with the stream's sinks after what was asked of one of them."""
    _layout(stream_id, profile)
    from handlers.api.sinks import command, commanded

    asked = command(query, known.sinks(profile) if settings.sinks_function else ())
    commanded(functions(plain, read_timeout_s=COMMAND_S), settings.sinks_function, stream_id, asked)
    logger.info("asked of a sink", extra={"stream_id": stream_id, "sink": asked["sink"], "asked": asked["command"]})
    return _sinks(stream_id, profile)


def _sinks(stream_id: str, profile: str) -> Answer:
    """200 with the stream's sinks."""
    return said(200, {"stream": stream_id, "sinks": _delivery(stream_id, profile).get("delivery", [])})


def _lag_ms(stream_id: str) -> int | None:
    """Returns how far the slowest of the stream's sinks is behind; None where its profile names none."""
    rows = _delivery(stream_id, stream_id.partition(":")[0]).get("delivery", ())
    return max((row["lag_ms"] for row in rows), default=None)


def _streams(request: PageRequest) -> Answer:
    """200 with a page of the streams that were ever started, as handlers/api/status.py builds it."""
    late_at_s = time.monotonic() + PAGE_S
    # One more than is shown: whether there is a next page.
    ids = store.streams(request.after, request.limit + 1)
    read = store.read_briefly(ids[: request.limit])
    page = status.page(
        ids, read, request.limit, _now_ms(), DEAD_AFTER_MS, RETRIES, lambda: time.monotonic() > late_at_s, _lag_ms
    )
    return said(200, page)


def _events(stream_id: str, profile: str, request: PageRequest, kind: str) -> Answer:
    """200 with a page of events, as docs/store.md describes it, in the representation `kind`."""
    layout = _layout(stream_id, profile)
    event_pages.check_place(request.after, layout.order, by_time=bool(request.order))
    late_at_s = time.monotonic() + PAGE_S
    is_late = lambda: time.monotonic() > late_at_s  # noqa: E731
    by_time, after, limit = None, request.after, request.limit
    if request.order:
        # Few ask for it, and what is imported lengthens each cold start.
        from handlers.api import own_order

        if kind == event_pages.EVENT_STREAM:
            raise BadQuery("order", "an event stream is in order of arrival", "Leave order out, or ask for JSON.")
        by_time, after, limit = own_order.time_of(known.text(profile)), "", own_order.MOST + 1
    begin = reader.place_at(stream_id, layout, request.from_ms)
    entries = reader.entries(stream_id, layout, _now_ms(), max(after, begin), limit, event_pages.BODY_BYTES)
    wanted = event_pages.within(entries, request, layout)
    if by_time is not None:
        page = own_order.page(stream_id, wanted, request, by_time, is_late)
    else:
        page = event_pages.page(stream_id, wanted, request.limit, is_late, order=layout.order)
    headers, text = event_pages.answer(kind, page, request)
    return text_answer(200, text, headers)


def _gaps(stream_id: str, profile: str, request: PageRequest) -> Answer:
    """200 with a page of gaps, as handlers/api/gaps.py builds it."""
    records = _read(stream_id, profile)
    connections = Connections(records, _now_ms(), DEAD_AFTER_MS)
    written = store.gaps(stream_id, gaps.sort_key(request.after), request.limit + 1)
    word = status_words.status(connections)
    return said(200, gaps.gap_page(stream_id, word, connections, written, records.repairs, request))


def _delete(stream_id: str, profile: str) -> Answer:
    """202 with what follows from the stop request, which is recorded; a stream that has stopped gets the same."""
    requested_at = at(_now_ms())
    assert requested_at is not None
    if store.stop(stream_id, requested_at, may_start=known.has(profile)) is None:
        raise known.problem_without(stream_id, profile)
    logger.info("stop requested", extra={"stream_id": stream_id})
    stream = status.answer(stream_id, _records(stream_id, profile), _now_ms(), DEAD_AFTER_MS, RETRIES)
    names = ("stream", "status", "reason", "execution", "stop_requested_at", "ended_at", "holder")
    shown = {name: stream[name] for name in names}
    return said(202, {**shown, "message": status_words.what_follows(stream, RENEWED_MS // 1000)})


def _redrive(stream_id: str, profile: str) -> Answer:
    """200 with the outcomes of the stream's dead-letter messages."""
    _layout(stream_id, profile)
    # Few ask for it, and what is imported lengthens each cold start.
    from handlers.redrive.redriving import Stage, redriven
    from handlers.redrive.restore import Events

    late_at_s = time.monotonic() + REDRIVE_S
    tables, objects = boto3_client("dynamodb", TRIES), _objects()
    stage = Stage(
        boto3_client("sqs", TRIES),
        settings.dead_letter_queue_url,
        tables,
        settings.control_table,
        Events(tables, settings.events_table, objects),
        boto3_client("stepfunctions", TRIES),
        "",
        REDRIVE_HELD_S,
        lambda: time.monotonic() > late_at_s,
    )
    return said(200, redriven(stage, stream_id))


def _repair(stream_id: str, profile: str, query: object) -> Answer:
    """200 with the gaps that are repaired now; with `dry_run=true` with what they would bring."""
    _layout(stream_id, profile)
    # Few ask for it, and what is imported lengthens each cold start.
    from handlers.api import repair_route

    if "repair" not in known.fields(profile):
        raise repair_route.no_address(profile)
    stage = repair_route.Stage(
        store, RepairWork(client, settings.control_table), LedgerRecords(client, settings.control_table, 0),
        lambda: boto3_client("lambda", 1, repair_route.DRY_RUN_S), settings.repair_function,
    )  # fmt: skip
    return said(200, repair_route.answer(stage, stream_id, query, _now_ms()))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
