"""The places of streams: the tables and the bucket of a deployed stage or of the run on this machine.

    prod                         the stage, in the region of the environment
    prod@eu-west-1               the stage in another region
    prod/EVENTS,CONTROL          its bucket with other tables, because a restored table has another name
    local, local:3100            the run on this machine, at its PORT

Invariant: a place that cannot be reached, or lacks the tables, is one sentence before anything is read or written.
"""

import re
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.store.control_table import BY_RECORD
from handlers.store.overflow import Objects
from local.options import UserError
from local.stage_clients import connect_to_stage

HERE = "local"
_PLACE = re.compile(
    r"(?P<stage>[^@:/]+)(?:@(?P<region>[a-z0-9-]+))?(?::(?P<port>\d{1,5}))?"
    r"(?:/(?P<events>[A-Za-z0-9_.-]+),(?P<control>[A-Za-z0-9_.-]+))?"
)
FORMS = "a stage, STAGE@REGION, STAGE/EVENTS,CONTROL for other tables of it, or local for the run on this machine"


@dataclass(frozen=True)
class Place:
    """The tables, the bucket, and the machine that starts streams ("" for named tables); `name` is as the user typed
    it.
    """

    name: str
    dynamodb: Any
    control_table: str
    events_table: str
    objects: Objects
    states: Any
    start_machine: str

    @property
    def tables(self) -> tuple[str, str, str]:
        """Identifies the place: two names of the same place have the same value."""
        return self.dynamodb.meta.endpoint_url, self.control_table, self.events_table


def open_place(text: str) -> Place:
    """Returns the place of that name; raises UserError."""
    form = _PLACE.fullmatch(text)
    if form is None or (form["port"] and form["stage"] != HERE):
        raise UserError(f"{text!r} is not a place: write {FORMS}.")
    is_here = form["stage"] == HERE
    stage = connect_to_stage(None if is_here else form["stage"], form["region"] or "", int(form["port"] or 0))
    place = Place(
        text,
        stage.clients["dynamodb"],
        form["control"] or stage.names["control_table"],
        form["events"] or stage.names["events_table"],
        Objects(lambda: stage.clients["s3"], stage.bucket),
        stage.clients["stepfunctions"],
        "" if form["events"] else stage.machine_arn("start"),
    )
    for table in (place.control_table, place.events_table):
        _check(place, table)
    return place


def _check(place: Place, table: str) -> None:
    try:
        indexes = place.dynamodb.describe_table(TableName=table)["Table"].get("GlobalSecondaryIndexes", ())
    except (BotoCoreError, ClientError) as problem:
        code = getattr(problem, "response", {}).get("Error", {}).get("Code", type(problem).__name__)
        gone = code == "ResourceNotFoundException"
        why = "there is no such table; `sls deploy` creates those of a stage" if gone else code
        raise UserError(f"The table {table} of {place.name} cannot be read: {why}.") from None
    is_control = any(one["IndexName"] == BY_RECORD for one in indexes)
    if is_control != (table == place.control_table) or place.control_table == place.events_table:
        has = "has" if is_control else "lacks"
        words = f"The table {table} {has} the index {BY_RECORD} of control tables: write STAGE/EVENTS,CONTROL"
        raise UserError(f"{words}, and restore a table with its indexes.")
