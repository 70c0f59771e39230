"""Makes what the control API needs at its cold start, and reads what its routes show of a stream.

Few requests need AWS's own clients, so they are made at their first use. Invariant: nothing is written here.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from handlers.api import routes, status
from handlers.api.connection_records import Records
from handlers.api.known_profiles import KnownProfiles
from handlers.api.last_error import Retries
from handlers.aws import executions
from handlers.aws.lambda_environment import boto3_client, bucket, dynamodb, functions, plain_aws
from handlers.connection.inputs import Layout
from handlers.connection.lease import LEASE_TTL_READS, Lease
from handlers.errors import StoreUnavailable
from handlers.run.profile_source import Profiles
from handlers.settings import ControlSettings
from handlers.store.event_reader import EventReader
from handlers.store.overflow import Objects
from handlers.store.stream_records import StreamRecords

if TYPE_CHECKING:
    from handlers.api.parted_streams import PartedStreams

# To show and to stop a stream takes six requests at most, and the function has 20 seconds.
TRIES = 2
# A receive waits a second for messages. If its answer came too late, the second try would not get them, because they
# are hidden by then.
RECEIVED_WITHIN_S = 5
# The delivery answers a command in some ms, after a cold start of a second or two.
COMMAND_S = 10


class ApiCall(NamedTuple):
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


class ControlStage:
    """The stage by the function's environment, where a bad one raises SettingsError; `warn` logs a sentence."""

    def __init__(self, environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self.settings = settings = ControlSettings.load(environment)
        plain = plain_aws(environment)
        self._warn = warn
        self.client = dynamodb(plain, tries=TRIES)
        self.profiles = Profiles(
            settings, functools.cache(lambda: bucket(plain, tries=TRIES)), lambda: boto3_client("s3", TRIES), warn
        )
        self.known = KnownProfiles(self.profiles, settings)
        self.store = StreamRecords(self.client, settings.control_table, settings.events_table)
        self.reader = EventReader(self.client, settings.events_table, self._fetch)
        # The same as the manager's: a holder counts as dead after this many of its renewals have failed to come.
        self.renewed_ms = max(settings.lease_every_ms, settings.progress_every_ms)
        self.dead_after_ms = LEASE_TTL_READS * self.renewed_ms
        self.retries = Retries(settings.retried_within_ms, settings.throttled_within_ms)
        self.states = functools.partial(boto3_client, "stepfunctions", TRIES)
        self.sqs = functools.partial(boto3_client, "sqs", TRIES, RECEIVED_WITHIN_S)
        self.functions = functools.partial(functions, plain, read_timeout_s=COMMAND_S)

    def now_ms(self) -> int:
        """Returns the time as epoch milliseconds."""
        return time.time_ns() // 1_000_000

    @property
    def timing(self) -> tuple[int, int, Retries]:
        """Now, after which silence a connection counts as dead, and within what time a lane tries again."""
        return self.now_ms(), self.dead_after_ms, self.retries

    def objects(self) -> Objects:
        """Returns the bucket of large bodies."""
        return Objects(lambda: boto3_client("s3", TRIES), self.settings.events_bucket)

    def _fetch(self, key: str) -> bytes | None:
        """Returns an object's bytes; None if it cannot be read: it may be gone for good, the next events are not."""
        try:
            return self.objects().get(key)
        except StoreUnavailable as error:
            self._warn(str(error))
            return None

    # --- a stream -----------------------------------------------------------------------------------------------------

    def records(self, call: ApiCall) -> Records:
        """Returns the stream's records as they are; raises Problem if there are none."""
        records = self.store.read(call.stream_id)
        if records is None and self.known.has(call.profile):
            records = self.first_execution(call.stream_id)
        if records is None:
            raise self.known.problem_without(call.stream_id, call.profile)
        return records

    def readable_records(self, call: ApiCall) -> Records:
        """Returns the stream's records; raises StoreUnavailable for an unknown layout, which only the status shows."""
        records = self.records(call)
        if "layout" in records.damage:
            self.store.layout(call.stream_id)
        return records

    def first_execution(self, stream_id: str) -> Records | None:
        """Returns the execution of a stream whose first POST was answered a moment ago; None if there is none."""
        with contextlib.suppress(StoreUnavailable):
            found = executions.find_first_execution(self.states(), self.settings.state_machine_arn, stream_id)
            return None if found is None else Records(Lease(execution=found[0], started_at_ms=found[1]), None, None, ())
        return None

    def layout(self, call: ApiCall) -> Layout:
        """Returns how the stream's events are stored; raises Problem if it was never started."""
        layout = self.store.layout(call.stream_id)
        if layout is None:
            raise self.known.problem_without(call.stream_id, call.profile)
        return layout

    def status(self, call: ApiCall, *, is_stop: bool = False) -> dict[str, Any]:
        """Returns the stream's status by its records; raises Problem if there are none."""
        records = self.records(call)
        # The stop of a stream that runs waits for no bucket of profiles.
        if not (is_stop and records.lease.execution):
            records = self.known.enrich(call.stream_id, records)
        return status.answer(call.stream_id, records, *self.timing)

    def parted_streams(self) -> PartedStreams:
        """Returns what answers about streams that are read in parts; imported here, for few are."""
        from handlers.api.parted_streams import PartedStreams

        return PartedStreams(self.store, self.known, self.first_execution, *self.timing)

    def started_streams(self, call: ApiCall) -> list[str]:
        """Returns the stream, or those of its parts that were ever started; raises Problem if there is none."""
        found = [one for one in call.parts or (call.stream_id,) if self.store.layout(one) is not None]
        if not found:
            raise self.known.problem_without(call.stream_id, call.profile)
        return found

    def sink_rows(self, call: ApiCall, streams: Sequence[str]) -> list[dict[str, Any]]:
        """Returns a row for each sink of these streams, which are the one that was requested or parts of it."""
        rows = [(one, row) for one in streams for row in self._sink_rows_of(one, call.profile)]
        return [({"stream": one} if call.parts else {}) | row for one, row in rows]

    def _sink_rows_of(self, stream_id: str, profile: str) -> list[dict[str, Any]]:
        """Returns a row for each of the stream's sinks; none, without reading anything, if its profile names none."""
        if not self.settings.sinks_table or "deliver" not in self.known.fields(profile):
            return []
        from handlers.api.sinks import Sinks, row

        sinks = Sinks(self.client, self.settings.sinks_table, self.settings.events_table)
        found = sinks.read_all(stream_id, self.known.sinks(profile))
        return [row(*one, self.now_ms()) for one in found]

    def lag_ms(self, stream_id: str) -> int | None:
        """Returns how far the slowest of the stream's sinks is behind; None if its profile names none."""
        return max((row["lag_ms"] for row in self._sink_rows_of(stream_id, stream_id.partition(":")[0])), default=None)


def deadline_after(seconds: float) -> Callable[[], bool]:
    """Returns a function that returns whether this many seconds have passed since now."""
    late_at_s = time.monotonic() + seconds
    return lambda: time.monotonic() > late_at_s
