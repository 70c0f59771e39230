"""Delivers stored events to sinks: notes what arrived, rings for each stream and sink, and answers the bells.

Lambda calls it in four ways (handlers/deliver/delivery_steps.py):

    records of the table's stream   it sends events to quick sinks at once, notes the arrivals, and rings for the rest
    bells                           it delivers a stream's events to one sink, in a thread for each bell
    its schedule                    it rings the due bells again, and reports how far the sinks are behind
    a command                       it carries out a person's command to a sink

The template has this function only if a profile delivers (packaging/delivery.cjs). Invariants: no call waits for
another; a log line, a document of metrics and a dead-letter message contain a stream's id, a sink's label, a key and a
reason, never a body, an address or a secret.
"""

import functools
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from aws_lambda_powertools import Logger

from handlers.aws import lambda_environment
from handlers.aws.error_translation import translate_errors
from handlers.aws.lambda_environment import TimedContext, boto3_client, dynamodb, now_ms, plain_aws
from handlers.aws.secret_values import SecretValues
from handlers.connection.inputs import LOG, Order
from handlers.deliver.arrivals import Arrivals
from handlers.deliver.bells import Bell, Bells, Place
from handlers.deliver.contract import Tools, make_sender
from handlers.deliver.delivery_metrics import document, lag_document
from handlers.deliver.delivery_records import SinkRecords
from handlers.deliver.delivery_steps import Delivery
from handlers.deliver.feed import Feed
from handlers.deliver.sending import PARALLEL
from handlers.deliver.shared_requests import SharedRequests
from handlers.deliver.sink_commands import Command, Lag
from handlers.deliver.sinks.lambda_function import INVOKE_S
from handlers.deliver.table_records import oldest_ms
from handlers.deliver.worker import DeliveryPorts, Letter, Worked
from handlers.errors import StoreUnavailable
from handlers.profile.addresses import check_stream_id
from handlers.profile.checked_fields import Fields
from handlers.profile.deliver_field import Target, targets
from handlers.run.profile_source import Profiles
from handlers.settings import DeliverySettings
from handlers.store.control_table import Table
from handlers.store.event_items import Entry
from handlers.store.event_reader import EventReader
from handlers.store.stream_records import StreamRecords

# The tries of a request; the worker repeats a failed request later, after a back-off.
TRIES = 2
# A call stops sending this long before Lambda would end it, to write dead-letter messages and records.
MARGIN_MS = 10_000
# The bells that one call answers, each in a thread. A sink that hangs keeps the call running, but delays no other.
TOGETHER = 10
CALL_S = 3
# The age from which the call that notes records reports their lag.
LATE_MS = 60_000
EVERY = 1 << 30

logger = Logger()
settings = DeliverySettings.load(os.environ)
plain = plain_aws(os.environ)
client = dynamodb(plain, tries=TRIES)
functions = lambda_environment.functions(plain, read_timeout_s=CALL_S)
secrets = SecretValues(boto3_client, settings.secrets_prefix)
table, events = Table(client, settings.delivery_table), Table(client, settings.events_table)
arrivals = Arrivals(table)
streams = StreamRecords(client, settings.control_table, settings.events_table)
reader = EventReader(client, settings.events_table, lambda _key: None)
profiles = Profiles(
    settings,
    functools.cache(lambda: lambda_environment.bucket(plain, tries=TRIES)),
    lambda: boto3_client("s3", TRIES),
    logger.warning,
)


def handler(event: Mapping[str, Any], lambda_context: TimedContext) -> dict[str, Any]:
    """Returns {}, or {"problem"} if a command was not carried out."""
    logger.append_keys(request_id=lambda_context.aws_request_id)
    delivery = make_delivery(lambda: lambda_context.get_remaining_time_in_millis() - MARGIN_MS)
    if "Records" in event:
        written_ms = oldest_ms(event["Records"])
        if now_ms() - written_ms >= LATE_MS:
            # No sweep counts records that are not noted yet.
            _print_lag([Lag(len(event["Records"]), written_ms)])
        delivery.note(event["Records"])
    elif "bells" in event:
        with ThreadPoolExecutor(TOGETHER) as threads:
            list(threads.map(functools.partial(answer, delivery), event["bells"]))
    elif "command" in event:
        return command(delivery, event)
    else:
        _print_lag(delivery.sweep())
    return {}


def make_delivery(left_ms: Callable[[], int]) -> Delivery:
    """Returns the delivery of a call; `arrivals` keeps the newest arrivals from call to call."""
    ports = DeliveryPorts(
        targets=lambda stream_id: targets_of(check_stream_id(stream_id)),
        sending=SharedRequests(lambda target: make_sender(target, TOOLS)).sender_of,
        call=invoke_self,
        dead_letter=dead_letter,
        report=report,
        now_ms=now_ms,
        left_ms=left_ms,
        sleep=lambda ms: time.sleep(ms / 1000),
        within=run_within,
        each=in_threads,
        reread=lambda stream_id: profiles.forget(check_stream_id(stream_id)),
    )
    return Delivery(arrivals, Bells(table), SinkRecords(table), Feed(arrivals, events, read_in_order), ports)


def in_threads(work: Callable[[Any], Any], several: Sequence[Any]) -> Iterable[Any]:
    """Returns the result for each item, computed at the same time; a single item needs no thread."""
    if len(several) == 1:
        return [work(several[0])]
    with ThreadPoolExecutor(PARALLEL) as threads:
        return list(threads.map(work, several))


def run_within(several: Sequence[Callable[[], None]], ms: int) -> None:
    """Runs several functions in threads; returns when all are done, or after `ms` milliseconds."""
    threads = ThreadPoolExecutor(TOGETHER)
    done, _ = wait([threads.submit(one) for one in several], ms / 1000)
    threads.shutdown(wait=False, cancel_futures=True)
    for problem in filter(None, (one.exception() for one in done)):
        # A defect at one sink must end no other's thread.
        logger.error("not sent at once", exc_info=problem)


def invoke_self(bells: Sequence[Bell]) -> None:
    """Invokes this function to answer the bells, in calls of their own."""
    for first in range(0, len(bells), TOGETHER):
        several = [[*bell.place, bell.until_ms, bell.arrival] for bell in bells[first : first + TOGETHER]]
        payload = json.dumps({"bells": several}).encode()
        try:
            with translate_errors("Invoke"):
                functions.invoke(FunctionName=settings.delivery_function, InvocationType="Event", Payload=payload)
        except StoreUnavailable as problem:
            # The bells are due again soon.
            logger.warning(str(problem))


def answer(delivery: Delivery, rung: Sequence[Any]) -> None:
    """Answers one bell. An error stays in its thread, and the bell is due again by itself."""
    stream_id, label, until_ms, number = rung
    try:
        delivery.answer(Bell(Place(stream_id, label), until_ms, number))
    except StoreUnavailable as problem:
        logger.error(str(problem), extra={"stream_id": stream_id, "sink": label})
    except Exception:
        # A defect at one sink must end no other's thread.
        logger.exception("not delivered for now", extra={"stream_id": stream_id, "sink": label})


def command(delivery: Delivery, event: Mapping[str, Any]) -> dict[str, Any]:
    """Carries out a person's command for each of the streams; raises StoreUnavailable."""
    wanted = Command(event["command"], event.get("from_ms", 0), bool(event.get("all")))
    places = [Place(stream_id, event["sink"]) for stream_id in event["streams"]]
    problems = filter(None, in_threads(functools.partial(delivery.carry_out, wanted), places))
    return {"problem": problem} if (problem := "; ".join(problems)) else {}


def read_in_order(stream_id: str, after: str, from_ms: int, at_ms: int) -> tuple[Order, Iterator[Entry]]:
    """Returns the kind of the stream's order, and its events after a place in that order."""
    layout = streams.layout(stream_id)
    if layout is None:
        return "index", iter(())
    begin = after or reader.place_at(stream_id, layout, from_ms)
    entries = reader.entries(stream_id, layout, at_ms, begin, EVERY)
    return "none" if layout.partitions == LOG else layout.order, entries


def targets_of(profile: str) -> tuple[Target, ...]:
    """Returns the sinks of a profile, () if there is no profile; raises ValueError for an invalid one."""
    return _targets(profile, profiles.text(profile))


@functools.lru_cache(1000)
def _targets(profile: str, text: str) -> tuple[Target, ...]:
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # The parser's own message quotes the file, which may hold a secret.
        raise ValueError(f"the profile {profile!r} is not valid TOML") from None
    fields = Fields(profile, parsed, [])
    several = targets(fields)
    if fields.problems:
        raise ValueError(fields.problems[0])
    return several


def client_of(name: str) -> Any:
    """Returns the client of a service. Lambda's waits for the function, and never repeats a call."""
    if name == "lambda":
        return boto3_client("lambda", 1, INVOKE_S, TOGETHER)
    return boto3_client(name, TRIES, at_once=TOGETHER)


TOOLS = Tools(client_of, lambda reference: secrets.read([reference])[reference], now_ms)


def dead_letter(letter: Letter) -> bool:
    """Sends a message to the dead-letter queue; returns whether it was accepted. The event itself is in the table."""
    fields = {"stream": letter.stream_id, "sink": letter.label, "key": letter.key, "position": letter.position}
    try:
        with translate_errors("SendMessage"):
            body = json.dumps({**fields, "reason": letter.reason})
            client_of("sqs").send_message(QueueUrl=settings.dead_letter_queue_url, MessageBody=body)
    except StoreUnavailable as problem:
        logger.error(str(problem), extra={"stream_id": letter.stream_id, "sink": letter.label})
        return False
    logger.error("not delivered", extra={**fields, "reason": letter.reason})
    return True


def report(place: Place, worked: Worked) -> None:
    """Prints the result of a call, for the log and for CloudWatch's metrics."""
    if worked.reason:
        fields = {"stream_id": place.stream_id, "sink": place.label, "reason": worked.reason}
        logger.warning("events wait", extra=fields)
    if worked.delivered or worked.failed or worked.dead_lettered:
        _print(document(place, worked, logger.service, settings.metrics_namespace, settings.metrics_by, now_ms()))


def _print_lag(behind: Sequence[Lag]) -> None:
    _print(lag_document(behind, logger.service, settings.metrics_namespace, now_ms()))


def _print(document: Mapping[str, Any]) -> None:
    # CloudWatch reads the metrics out of the log, whatever level the logger has.
    print(json.dumps(document, separators=(",", ":")), flush=True)
