"""Answers the requests of the HTTP API, but for the POST that starts a stream, which Step Functions answers itself.

`handlers/api/routes.py` names the routes; the events are those of API Gateway's Lambda proxy. The client and the logger
are made at the cold start, which a bad environment fails. Modules that few requests need are imported by these
requests, because each import lengthens the cold start. Invariants: a GET writes nothing; a DELETE writes only the stop
request, so it may be repeated; a redrive puts each event back once; no answer quotes AWS.
"""

import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools import Logger

from handlers.api import (
    dead_letter_pages,
    event_pages,
    problems,
    routes,
    status,
    status_words,
    stream_pages,
    views,
)
from handlers.api.answers import at, conditional, said, text_answer
from handlers.api.bill import cost
from handlers.api.control_stage import Asked, ControlStage, late_after
from handlers.api.problems import Problem
from handlers.api.queries import BadQuery, is_dry_run, parameters_of, query_of
from handlers.aws.lambda_environment import LambdaContext
from handlers.errors import StoreUnavailable
from handlers.profile.addresses import ProfileError, check_stream_id

# After this time a page is returned as far as it has been read.
PAGE_S = 8
# API Gateway waits for 29 s. The next request continues a walk through the queue that ended early.
REDRIVE_S, REDRIVE_HELD_S = 8, 30
# After this time a request for dead letters reads no more of the queue.
QUEUE_S = 6
# The Retry-After if a service throttles. Most throttling ends within seconds.
RETRY_AFTER_S = 5
STREAM = "/connections/{streamId}"
Answer = dict[str, Any]

logger = Logger()
stage = ControlStage(os.environ, logger.warning)


def handler(event: object, lambda_context: LambdaContext) -> Answer:
    """Returns the answer for the Lambda proxy: 200 or 202 with a body, else a problem of handlers/api/problems.py.

    304: the client has the answer to its GET already; 400: the stream id or the query is malformed; 404: there is no
    such stream; 405: the route does not allow this method; 429: a service throttles; 503: a service does not answer.
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
        problem = _store_problem(error)
    except Problem as error:
        problem = error
    return said(problem.status, problem.body(api_request_id), problem.headers | {"Content-Type": problems.CONTENT_TYPE})


def _store_problem(error: StoreUnavailable) -> Problem:
    """Returns the problem for a service that did not answer, or for a record that this version cannot read."""
    if error.is_unknown_layout:
        return Problem("unknown-layout", str(error))
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    if error.is_throttle:
        words = f"{error.service} takes no more requests now; try again in {RETRY_AFTER_S} s"
        return Problem("throttled", words, headers=headers)
    return Problem("unavailable", f"{error.service} does not answer", headers=headers)


def _answer(method: str, stream_id: str, fields: Mapping[str, Any]) -> Answer:
    """Returns the answer to the request; raises Problem, ProfileError, BadQuery and StoreUnavailable."""
    resource = str(fields.get("resource", STREAM))
    profile = check_stream_id(stream_id) if resource.startswith(STREAM) else ""
    route, parts = f"{method} {resource}", stage.known.parts(stream_id) if profile else ()
    if route not in _ROUTES:
        raise routes.bad_method(method, resource)
    query = query_of(fields)
    if profile and route not in _WITH_PARAMETERS:
        parameters_of(query, ())
    if parts and route in _OF_EACH_PART:
        words = f"the stream {stream_id!r} is read in parts, each with its own answer: request {', '.join(parts)}"
        raise Problem("in-parts", words, "streamId")
    return _ROUTES[route](Asked(stream_id, profile, query, fields, parts))


def _openapi(asked: Asked) -> Answer:
    from handlers.api.openapi import document

    return said(200, document.document(routes.base(asked.fields)))


def _status(asked: Asked) -> Answer:
    """200 with the stream's status, the problem of its profile, if any, and its sinks."""
    answer = stage.parted().whole(asked.stream_id, asked.parts) if asked.parts else stage.status(asked)
    if problem := stage.known.problem(asked.profile):
        answer |= {"reason": answer["reason"] or problem, "profile_problem": problem}
    rows = stage.rows(asked, asked.parts or [asked.stream_id])
    return said(200, answer | ({"delivery": rows} if rows else {}))


def _fleet(asked: Asked, *, is_put: bool = False) -> Answer:
    """200 with the progress of the document; a PUT first begins to apply its own document."""
    from handlers.api import fleet_routes
    from handlers.fleet.fleet_records import FleetRecords

    is_dry = is_dry_run(parameters_of(asked.query, ("dry_run",)), "apply")
    records, now_ms = FleetRecords(stage.client, stage.settings.control_table, is_dry=is_dry), stage.now_ms()
    if not is_put:
        return said(200, fleet_routes.shown(records.read(), now_ms, is_dry=is_dry))
    body, known = str(asked.fields.get("body") or ""), stage.known
    wanted = fleet_routes.document(body, asked.header("content-type"), known.has, known.parts)
    machine_arn = stage.settings.fleet_machine_arn
    return said(200, fleet_routes.put(records, wanted, stage.states, machine_arn, now_ms, is_dry=is_dry))


def _sinks(asked: Asked) -> Answer:
    """200 with the stream's sinks, or with those of each of its parts."""
    return said(200, {"stream": asked.stream_id, "sinks": stage.rows(asked, stage.started(asked))})


def _command(asked: Asked) -> Answer:
    """200 with the stream's sinks, after a command to one of them, in each part of a stream in parts."""
    streams = stage.started(asked)
    from handlers.api.sinks import command, commanded

    sinks = stage.known.sinks(asked.profile) if stage.settings.sinks_function else ()
    wanted = command(asked.query, sinks, stage.now_ms())
    if asked.parts and wanted["command"] == "skip" and not wanted["all"]:
        # The refused event is in one part. In the other parts a skip would drop events that the sink accepts.
        words = f"a single event is skipped in one part: request {', '.join(asked.parts)}; all=true skips in all"
        raise Problem("in-parts", words, "streamId")
    commanded(stage.functions(), stage.settings.sinks_function, streams, wanted)
    more = {"stream_id": asked.stream_id, "sink": wanted["sink"], "asked": wanted["command"]}
    logger.info("sink command requested", extra=more)
    return _sinks(asked)


def _streams(asked: Asked) -> Answer:
    """200 with a page of the streams that were ever started, as handlers/api/status.py builds it."""
    request, is_late = status.LISTING.read(asked.query), late_after(PAGE_S)
    # One more id than the page shows tells whether there is a next page.
    ids = stage.store.streams(request.after, request.limit + 1)
    read = stage.store.read_for_status(ids[: request.limit])
    page = status.page(
        ids, lambda one: stage.known.beside(one, read(one)), request.limit, *stage.judged, is_late, stage.lag_ms
    )
    if any(map(stage.known.parts, {row["stream"].partition(":")[0] for row in page["streams"]})):
        page["streams"] = stage.parted().listed(page["streams"], stage.lag_ms)
    return said(200, page)


def _events(asked: Asked) -> Answer:
    """200 with a page of events, as docs/store.md describes it, in the representation that the client accepts."""
    is_late = late_after(PAGE_S)
    request = event_pages.LISTING.read(asked.query, asked.header("last-event-id"))
    kind = event_pages.representation(asked.header("accept"))
    if request.order and kind == event_pages.EVENT_STREAM:
        raise BadQuery("order", "an event stream is in order of arrival", "Leave order out, or ask for JSON.")
    page = stream_pages.events(stage, asked, request, is_late)
    headers, text = event_pages.answer(kind, page, request)
    return text_answer(200, text, headers)


def _delete(asked: Asked) -> Answer:
    """202 once the stop request is recorded, with its consequences, also for a stream that has stopped already."""
    requested_at = at(stage.now_ms())
    assert requested_at is not None
    for stream_id in asked.parts or (asked.stream_id,):
        if stage.store.stop(stream_id, requested_at, may_start=False) is None:
            if not stage.known.has(asked.profile):
                raise stage.known.problem_without(stream_id, asked.profile)
            # Its first POST may be on its way.
            stage.store.stop(stream_id, requested_at, may_start=True)
        logger.info("stop requested", extra={"stream_id": stream_id})
    is_whole = bool(asked.parts)
    stream = stage.parted().whole(asked.stream_id, asked.parts) if is_whole else stage.status(asked, is_stop=True)
    names = ("stream", "status", "reason", "execution", "stop_requested_at", "ended_at", "holder")
    shown = {name: stream[name] for name in names}
    message = status_words.what_follows(stream, stage.renewed_ms // 1000)
    if any(one["status"] == "stopping" for one in stream.get("parts", ())):
        message = "Each part stores what it has read and closes; its execution ends."
    return said(202, {**shown, "message": message})


def _redrive(asked: Asked) -> Answer:
    """200 with the outcomes of the stream's dead-letter messages."""
    if not asked.parts:
        stage.layout(asked)
    from handlers.redrive.redriving import Stage, redrive_stream
    from handlers.redrive.restore import Events

    is_late, settings, tables = late_after(REDRIVE_S), stage.settings, stage.client
    redrive = Stage(
        stage.sqs(),
        settings.dead_letter_queue_url,
        tables,
        settings.control_table,
        Events(tables, settings.events_table, stage.objects()),
        stage.states(),
        "",
        REDRIVE_HELD_S,
        is_late,
    )
    return said(200, redrive_stream(redrive, asked.stream_id, asked.parts))


def _repair(asked: Asked) -> Answer:
    """200 with the gaps that are repaired now; with `dry_run=true`, with the events that their repair would store."""
    from handlers.api import repair_route

    # One function at a time repairs the gaps of a profile, so the parts share the time.
    ends_s = time.monotonic() + repair_route.DRY_RUN_S

    def repaired(one: Asked) -> dict[str, Any]:
        stage.layout(one)
        return repair_route.answer(stage, one, ends_s)

    if not asked.parts:
        return said(200, repaired(asked))
    every = [repaired(asked._replace(stream_id=part_id, parts=())) for part_id in stage.started(asked)]
    gaps = [gap for one in every for gap in one["gaps"]]
    return said(200, {"stream": asked.stream_id, "is_dry_run": any(one["is_dry_run"] for one in every), "gaps": gaps})


def _machine(asked: Asked) -> Answer:
    """200 with the states of the machine of the stream's execution, and the current ones."""
    return said(200, views.newest_machine(stage.states, asked.stream_id, stage.readable(asked)))


def _cost(asked: Asked) -> Answer:
    """200 with an estimate of the cost of the stream, or of its parts together."""
    if asked.parts:
        return said(200, stage.parted().cost(asked.stream_id, asked.parts))
    return said(200, cost(asked.stream_id, stage.readable(asked), *stage.judged[:2]))


def _dead_letters(asked: Asked) -> Answer:
    """200 with the stream's messages in the dead-letter queue, or with its parts'."""
    if not asked.parts:
        stage.readable(asked)
    url, is_late = stage.settings.dead_letter_queue_url, late_after(QUEUE_S)
    messages, is_all = dead_letter_pages.received(stage.sqs(), url, is_late)
    return said(200, dead_letter_pages.page(asked.stream_id, messages, is_all, asked.parts))


def _latest(asked: Asked) -> Answer:
    """200 with the position from which the stream's newest events are read."""
    if not asked.parts:
        stage.readable(asked)
    return said(200, views.latest(stage.store, stage.settings.events_table, asked.stream_id, asked.parts))


# A stream that is read in parts does not have these routes; each of its parts does.
_OF_EACH_PART = (f"GET {STREAM}/timeline", f"GET {STREAM}/machine")
# These routes of a stream read their parameters themselves; its other routes have none.
_WITH_PARAMETERS = (f"GET {STREAM}/events", f"GET {STREAM}/gaps", f"POST {STREAM}/sinks", f"POST {STREAM}/repair")
_ROUTES: dict[str, Callable[[Asked], Answer]] = {
    "GET /": lambda asked: routes.to_page(asked.fields) or said(200, routes.index(stage.profiles.names())),
    "GET /openapi.json": _openapi,
    "GET /connections": _streams,
    "GET /console": lambda _: routes.console(routes.PAGE),
    "GET /console/{file}": lambda asked: routes.console(str((asked.fields.get("pathParameters") or {}).get("file"))),
    "GET /fleet": _fleet,
    "PUT /fleet": functools.partial(_fleet, is_put=True),
    f"GET {STREAM}": _status,
    f"DELETE {STREAM}": _delete,
    f"GET {STREAM}/events": _events,
    f"GET {STREAM}/gaps": lambda asked: said(200, stream_pages.gap_list(stage, asked)),
    f"GET {STREAM}/timeline": lambda asked: said(200, stream_pages.timeline(stage, asked)),
    f"GET {STREAM}/machine": _machine,
    f"GET {STREAM}/cost": _cost,
    f"GET {STREAM}/dead-letters": _dead_letters,
    f"GET {STREAM}/latest": _latest,
    f"GET {STREAM}/sinks": _sinks,
    f"POST {STREAM}/sinks": _command,
    f"POST {STREAM}/redrive": _redrive,
    f"POST {STREAM}/repair": _repair,
}
