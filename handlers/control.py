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

from handlers.api import answers, dead_letter_pages, event_pages, routes, status, status_words, stream_pages, views
from handlers.api.answers import Problem, conditional_answer, reply, text_answer, to_iso
from handlers.api.bill import cost
from handlers.api.control_stage import ApiCall, ControlStage, deadline_after
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
    """Returns the answer for the Lambda proxy: 200 or 202 with a body, else a problem of handlers/api/answers.py.

    304: the client has the answer to its GET already; 400: the stream id or the query is malformed; 404: there is no
    such stream; 405: the route does not allow this method; 429: a service throttles; 503: a service does not answer.
    """
    fields = event if isinstance(event, Mapping) else {}
    method, stream_id = routes.read_event(event)
    api_request_id = routes.read_request_id(fields)
    logger.append_keys(request_id=lambda_context.aws_request_id, api_request_id=api_request_id)
    try:
        answer = _answer(method, stream_id, fields)
        return conditional_answer(answer, routes.read_header(fields, "if-none-match")) if method == "GET" else answer
    except ProfileError as error:
        problem = Problem("bad-stream-id", str(error), "streamId")
    except BadQuery as error:
        problem = Problem("bad-query", str(error), error.field, error.fix)
    except StoreUnavailable as error:
        logger.error(str(error), extra={"stream_id": stream_id})
        problem = _store_problem(error)
    except Problem as error:
        problem = error
    return reply(problem.status, problem.body(api_request_id), problem.headers | {"Content-Type": answers.CONTENT_TYPE})


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
    return _ROUTES[route](ApiCall(stream_id, profile, query, fields, parts))


def _openapi(call: ApiCall) -> Answer:
    from handlers.api.openapi import document

    return reply(200, document.document(routes.base_path(call.fields)))


def _status(call: ApiCall) -> Answer:
    """200 with the stream's status, the problem of its profile, if any, and its sinks."""
    answer = stage.parted_streams().status(call.stream_id, call.parts) if call.parts else stage.status(call)
    if problem := stage.known.problem(call.profile):
        answer |= {"reason": answer["reason"] or problem, "profile_problem": problem}
    rows = stage.sink_rows(call, call.parts or [call.stream_id])
    return reply(200, answer | ({"delivery": rows} if rows else {}))


def _fleet(call: ApiCall, *, is_put: bool = False) -> Answer:
    """200 with the progress of the document; a PUT first begins to apply its own document."""
    from handlers.api import fleet_routes
    from handlers.fleet.fleet_records import FleetRecords

    is_dry = is_dry_run(parameters_of(call.query, ("dry_run",)), "apply")
    records, now_ms = FleetRecords(stage.client, stage.settings.control_table, is_dry=is_dry), stage.now_ms()
    if not is_put:
        return reply(200, fleet_routes.read_progress(records, stage.states, now_ms, is_dry=is_dry))
    body, known = str(call.fields.get("body") or ""), stage.known
    wanted = fleet_routes.document(body, call.header("content-type"), known.has, known.parts)
    machine_arn = stage.settings.fleet_machine_arn
    return reply(200, fleet_routes.apply_document(records, wanted, stage.states, machine_arn, now_ms, is_dry=is_dry))


def _sinks(call: ApiCall) -> Answer:
    """200 with the stream's sinks, or with those of each of its parts."""
    return reply(200, {"stream": call.stream_id, "sinks": stage.sink_rows(call, stage.started_streams(call))})


def _command(call: ApiCall) -> Answer:
    """200 with the stream's sinks, after a command to one of them, in each part of a stream in parts."""
    streams = stage.started_streams(call)
    from handlers.api.sinks import parse_command, send_command

    sinks = stage.known.sinks(call.profile) if stage.settings.sinks_function else ()
    wanted = parse_command(call.query, sinks, stage.now_ms())
    if call.parts and wanted["command"] == "skip" and not wanted["all"]:
        # The refused event is in one part. In the other parts a skip would drop events that the sink accepts.
        words = f"a single event is skipped in one part: request {', '.join(call.parts)}; all=true skips in all"
        raise Problem("in-parts", words, "streamId")
    send_command(stage.functions(), stage.settings.sinks_function, streams, wanted)
    more = {"stream_id": call.stream_id, "sink": wanted["sink"], "asked": wanted["command"]}
    logger.info("sink command requested", extra=more)
    return _sinks(call)


def _streams(call: ApiCall) -> Answer:
    """200 with a page of the streams that were ever started, as handlers/api/status.py builds it."""
    request, is_late = status.LISTING.read(call.query), deadline_after(PAGE_S)
    # One more id than the page shows tells whether there is a next page.
    ids = stage.store.streams(request.after, request.limit + 1)
    read = stage.store.read_for_status(ids[: request.limit])
    page = status.page(
        ids, lambda one: stage.known.enrich(one, read(one)), request.limit, *stage.timing, is_late, stage.lag_ms
    )
    if any(map(stage.known.parts, {row["stream"].partition(":")[0] for row in page["streams"]})):
        page["streams"] = stage.parted_streams().merge_rows(page["streams"], stage.lag_ms)
    return reply(200, page)


def _events(call: ApiCall) -> Answer:
    """200 with a page of events, as docs/store.md describes it, in the representation that the client accepts."""
    is_late = deadline_after(PAGE_S)
    request = event_pages.LISTING.read(call.query, call.header("last-event-id"))
    kind = event_pages.choose_media_type(call.header("accept"))
    if request.order and kind == event_pages.EVENT_STREAM:
        raise BadQuery("order", "an event stream is in order of arrival", "Leave order out, or ask for JSON.")
    page = stream_pages.events(stage, call, request, is_late)
    headers, text = event_pages.answer(kind, page, request)
    return text_answer(200, text, headers)


def _delete(call: ApiCall) -> Answer:
    """202 once the stop request is recorded, with its consequences, also for a stream that has stopped already."""
    requested_at = to_iso(stage.now_ms())
    assert requested_at is not None
    for stream_id in call.parts or (call.stream_id,):
        if stage.store.stop(stream_id, requested_at, may_start=False) is None:
            if not stage.known.has(call.profile):
                raise stage.known.problem_without(stream_id, call.profile)
            # Its first POST may be on its way.
            stage.store.stop(stream_id, requested_at, may_start=True)
        logger.info("stop requested", extra={"stream_id": stream_id})
    is_whole = bool(call.parts)
    stream = stage.parted_streams().status(call.stream_id, call.parts) if is_whole else stage.status(call, is_stop=True)
    names = ("stream", "status", "reason", "execution", "stop_requested_at", "ended_at", "holder")
    shown = {name: stream[name] for name in names}
    message = status_words.stop_consequences(stream, stage.renewed_ms // 1000)
    if any(one["status"] == "stopping" for one in stream.get("parts", ())):
        message = "Each part stores what it has read and closes; its execution ends."
    return reply(202, {**shown, "message": message})


def _redrive(call: ApiCall) -> Answer:
    """200 with the outcomes of the stream's dead-letter messages."""
    if not call.parts:
        stage.layout(call)
    from handlers.redrive.redriving import Stage, redrive_stream
    from handlers.redrive.restore import Events

    is_late, settings, tables = deadline_after(REDRIVE_S), stage.settings, stage.client
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
    return reply(200, redrive_stream(redrive, call.stream_id, call.parts))


def _repair(call: ApiCall) -> Answer:
    """200 with the gaps that are repaired now; with `dry_run=true`, with the events that their repair would store."""
    from handlers.api import repair_route

    # One function at a time repairs the gaps of a profile, so the parts share the time.
    ends_s = time.monotonic() + repair_route.DRY_RUN_S

    def repaired(one: ApiCall) -> dict[str, Any]:
        stage.layout(one)
        return repair_route.answer(stage, one, ends_s)

    if not call.parts:
        return reply(200, repaired(call))
    every = [repaired(call._replace(stream_id=part_id, parts=())) for part_id in stage.started_streams(call)]
    gaps = [gap for one in every for gap in one["gaps"]]
    return reply(200, {"stream": call.stream_id, "is_dry_run": any(one["is_dry_run"] for one in every), "gaps": gaps})


def _machine(call: ApiCall) -> Answer:
    """200 with the states of the machine of the stream's execution, and the current ones."""
    return reply(200, views.newest_machine(stage.states, call.stream_id, stage.readable_records(call)))


def _cost(call: ApiCall) -> Answer:
    """200 with an estimate of the cost of the stream, or of its parts together."""
    if call.parts:
        return reply(200, stage.parted_streams().cost(call.stream_id, call.parts))
    return reply(200, cost(call.stream_id, stage.readable_records(call), *stage.timing[:2]))


def _dead_letters(call: ApiCall) -> Answer:
    """200 with the stream's messages in the dead-letter queue, or with its parts'."""
    if not call.parts:
        stage.readable_records(call)
    url, is_late = stage.settings.dead_letter_queue_url, deadline_after(QUEUE_S)
    messages, is_all = dead_letter_pages.receive_messages(stage.sqs(), url, is_late)
    return reply(200, dead_letter_pages.page(call.stream_id, messages, is_all, call.parts))


def _latest(call: ApiCall) -> Answer:
    """200 with the position from which the stream's newest events are read."""
    if not call.parts:
        stage.readable_records(call)
    return reply(200, views.latest_place(stage.store, stage.settings.events_table, call.stream_id, call.parts))


# A stream that is read in parts does not have these routes; each of its parts does.
_OF_EACH_PART = (f"GET {STREAM}/timeline", f"GET {STREAM}/machine")
# These routes of a stream read their parameters themselves; its other routes have none.
_WITH_PARAMETERS = (f"GET {STREAM}/events", f"GET {STREAM}/gaps", f"POST {STREAM}/sinks", f"POST {STREAM}/repair")
_ROUTES: dict[str, Callable[[ApiCall], Answer]] = {
    "GET /": lambda call: routes.redirect_to_page(call.fields) or reply(200, routes.index(stage.profiles.names())),
    "GET /openapi.json": _openapi,
    "GET /connections": _streams,
    "GET /console": lambda _: routes.console(routes.PAGE),
    "GET /console/{file}": lambda call: routes.console(str((call.fields.get("pathParameters") or {}).get("file"))),
    "GET /fleet": _fleet,
    "PUT /fleet": functools.partial(_fleet, is_put=True),
    f"GET {STREAM}": _status,
    f"DELETE {STREAM}": _delete,
    f"GET {STREAM}/events": _events,
    f"GET {STREAM}/gaps": lambda call: reply(200, stream_pages.gap_list(stage, call)),
    f"GET {STREAM}/timeline": lambda call: reply(200, stream_pages.timeline(stage, call)),
    f"GET {STREAM}/machine": _machine,
    f"GET {STREAM}/cost": _cost,
    f"GET {STREAM}/dead-letters": _dead_letters,
    f"GET {STREAM}/latest": _latest,
    f"GET {STREAM}/sinks": _sinks,
    f"POST {STREAM}/sinks": _command,
    f"POST {STREAM}/redrive": _redrive,
    f"POST {STREAM}/repair": _repair,
}
