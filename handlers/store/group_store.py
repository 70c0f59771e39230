"""Keeps a group's lease and its members: each method is one conditional write, or one reading.

As `handlers/store/connection_store.py` does for a stream. Every write may be sent twice and may land late; each is made
so that this changes nothing: a beat that lands after its function was buried is refused.

Invariants: the token and the version only grow; a function that is buried never beats again. Any other answer of AWS
raises `StoreUnavailable`, after the client's own retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.aws.error_translation import ConditionFailed, translate_errors
from handlers.group.lease import Beat, GroupLease
from handlers.store import control_items
from handlers.store.control_items import Item, number
from handlers.store.control_table import ControlTable
from handlers.store.expressions import placeholders
from handlers.store.group_items import (
    MEMBER,
    OPEN,
    beat_name,
    beat_value,
    directory_key,
    group_lease,
    member,
    member_key,
)

# Functions of which nobody lives any more: Lambda's longest limit and a minute.
FORGOTTEN_MS = 960_000
# A place that was left lies there for a day, for whoever looks.
LEFT_S = 86_400
_ONE: Item = {":one": {"N": "1"}}


class GroupStore:
    """The group's records in the control table; the client is made once and shared."""

    def __init__(self, dynamodb: Any, control_table: str, group: str) -> None:
        self._dynamodb = dynamodb
        self._control_table = control_table
        self._table = ControlTable(dynamodb, control_table)
        self._group = group

    def read(self) -> GroupLease:
        """The lease as it stands now, read consistently."""
        return group_lease(self._table.get(self._group, "lease"))

    def version(self) -> int:
        """The version of the membership as it was a moment ago: not consistently, which costs half."""
        with translate_errors("GetItem"):
            response = self._dynamodb.get_item(
                TableName=self._control_table, Key=control_items.key(self._group, "lease"), ConsistentRead=False
            )
        return group_lease(response.get("Item")).version

    # --- the group's lease --------------------------------------------------------------------------------------------

    def claim(self, execution: str) -> tuple[bool, GroupLease]:
        """Whether the claim was granted, and the lease: its token is the function's own."""
        condition = "#execution = :execution AND (attribute_not_exists(#stop) OR #stop = :no)"
        return self._change(
            "SET #fence = if_not_exists(#fence, :zero) + :one",
            condition,
            ("fence", "execution", "stop"),
            {":execution": {"S": execution}, ":no": {"BOOL": False}, ":zero": {"N": "0"}, **_ONE},
        )

    def first_beat(self, request_id: str, execution: str, beat: Beat) -> tuple[bool, GroupLease]:
        """Whether the function counts as alive from now on, and the lease; not where the group was lost meanwhile."""
        names = {"#beat": beat_name(request_id), "#execution": "execution"}
        values = {":beat": beat_value(beat), ":execution": {"S": execution}}
        return self._named("SET #beat = :beat", "#execution = :execution", names, values)

    def beat(self, request_id: str, beat: Beat, known: GroupLease) -> tuple[bool, GroupLease]:
        """Whether the function is still alive, and the lease; what is `known` of functions long gone is removed."""
        gone = [name for name, one in known.beats.items() if name != request_id and self._is_gone(one, beat.at_ms)]
        names = {"#beat": beat_name(request_id)}
        places = {f"#gone{at}": beat_name(name, is_buried=known.beats[name].is_buried) for at, name in enumerate(gone)}
        update = "SET #beat = :beat" + (f" REMOVE {', '.join(places)}" if places else "")
        return self._named(update, "attribute_exists(#beat)", names | places, {":beat": beat_value(beat)})

    def bury(self, request_id: str, known: Beat) -> tuple[bool, GroupLease]:
        """Whether the function is buried now, and the lease; not where it has beaten since it was `known` so."""
        names = {"#beat": beat_name(request_id), "#dead": beat_name(request_id, is_buried=True)}
        values = {":known": beat_value(known)}
        return self._named("SET #dead = :known REMOVE #beat", "#beat = :known", names, values)

    def changed(self) -> GroupLease:
        """The lease after the membership has changed; whoever beats next reads it anew."""
        update = "SET #version = if_not_exists(#version, :zero) + :one"
        return self._change(update, "", ("version",), {":zero": {"N": "0"}, **_ONE})[1]

    def ends(self, execution: str, version: int) -> tuple[bool, GroupLease]:
        """Whether the group is ended, for it has no member at that version, and the lease."""
        condition = "#execution = :execution AND (#version = :version OR attribute_not_exists(#version))"
        names = ("stop", "execution", "version")
        values = {":yes": {"BOOL": True}, ":execution": {"S": execution}, ":version": number(version)}
        return self._change("SET #stop = :yes", condition, names, values)

    def counted(self, version: int, size: int, *, frees: bool) -> None:
        """Writes down how many members there are, as of that version; where that `frees` places, that there are some.

        A POST counts a place before it writes the member, and a stream that leaves gives it back by this alone.
        """
        condition = "#version = :version OR attribute_not_exists(#version)"
        values = {":size": number(size), ":version": number(version)}
        is_done, _ = self._change("SET #size = :size", condition, ("size", "version"), values)
        if is_done and frees:
            with translate_errors("UpdateItem"):
                self._dynamodb.update_item(
                    TableName=self._control_table,
                    Key=directory_key(),
                    UpdateExpression="SET #open = :yes",
                    ExpressionAttributeNames={"#open": f"{OPEN}{self._group}"},
                    ExpressionAttributeValues={":yes": {"BOOL": True}},
                )

    # --- its members --------------------------------------------------------------------------------------------------

    def members(self) -> Mapping[str, str]:
        """The streams of the group, each with when it joined, read consistently."""
        found: dict[str, str] = {}
        place: dict[str, Any] = {}
        while True:
            with translate_errors("Query"):
                response = self._dynamodb.query(
                    TableName=self._control_table,
                    KeyConditionExpression="PK = :group AND begins_with(SK, :member)",
                    ExpressionAttributeValues={":group": {"S": self._group}, ":member": {"S": MEMBER}},
                    ConsistentRead=True,
                    **place,
                )
            found.update(one for item in response["Items"] if (one := member(item)) is not None)
            if not response.get("LastEvaluatedKey"):
                return found
            place = {"ExclusiveStartKey": response["LastEvaluatedKey"]}

    def joins(self, stream_id: str, joined: str) -> None:
        """Gives the stream a place, or another stamp to the one that it has."""
        item = member_key(self._group, stream_id) | {"joined": {"S": joined}}
        with translate_errors("PutItem"):
            self._dynamodb.put_item(TableName=self._control_table, Item=item)

    def leaves(self, stream_id: str, joined: str, now_ms: int) -> bool:
        """Whether the stream that had joined then has no place any more; not where it has joined anew."""
        try:
            with translate_errors("UpdateItem"):
                self._dynamodb.update_item(
                    TableName=self._control_table,
                    Key=member_key(self._group, stream_id),
                    UpdateExpression="SET #expires_at = :expires_at REMOVE #joined",
                    ConditionExpression="#joined = :joined",
                    ExpressionAttributeNames=placeholders(("expires_at", "joined")),
                    ExpressionAttributeValues={
                        ":joined": {"S": joined},
                        ":expires_at": number(now_ms // 1000 + LEFT_S),
                    },
                )
        except ConditionFailed:
            return False
        return True

    # --- requests -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_gone(beat: Beat, now_ms: int) -> bool:
        """Whether its limit has passed: then the records of its connections say so themselves."""
        return beat.at_ms + FORGOTTEN_MS < now_ms

    def _change(
        self, update: str, condition: str, names: Sequence[str], values: Mapping[str, Any]
    ) -> tuple[bool, GroupLease]:
        return self._named(update, condition, placeholders(tuple(names)), values)

    def _named(
        self, update: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> tuple[bool, GroupLease]:
        """Whether the condition held, and the lease after the write, or as it was."""
        conditions = {"ConditionExpression": condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        try:
            with translate_errors("UpdateItem"):
                response = self._dynamodb.update_item(
                    TableName=self._control_table,
                    Key=control_items.key(self._group, "lease"),
                    UpdateExpression=update,
                    ExpressionAttributeNames=names,
                    ExpressionAttributeValues=values,
                    ReturnValues="ALL_NEW",
                    **(conditions if condition else {}),
                )
        except ConditionFailed as refused:
            # Not every emulator says what is there.
            return False, self.read() if refused.item is None else group_lease(refused.item)
        return True, group_lease(response.get("Attributes"))
