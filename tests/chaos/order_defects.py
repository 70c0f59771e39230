"""Deliberate defects of streams whose items are in no index, which a schedule of chaos must catch.

Each replaces one function of `handlers` by one that does what its docstring says; tests/chaos/chaos_defects.py lists
them with the others. They decide nothing else.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from handlers.connection.effects import Claim
from handlers.connection.inputs import Claimed, ClaimRefused, Order, RestOwed
from handlers.store.connection_store import Reply, Store
from handlers.store.requests import Requests
from local.chaos.schedule import Schedule
from tests.chaos.defect import Defect
from tests.chaos.protocol_defects import sets

CLAIM, CLAIM_LEASE = Requests._claim, Store.claim


def has_no_order(schedule: Schedule) -> bool:
    """Whether the first stream's items are in no index from its first claim on."""
    return schedule.store == "items" and schedule.order == "none"


def may_change(schedule: Schedule) -> bool:
    """Whether the profile of such a stream may say by and by that it has an order."""
    return has_no_order(schedule) and any(fault.kind == "redeploy" for fault in schedule.faults)


def gives_the_order_back(store: Store, stream_id: str, *, order: Order = "index", **claim: Any) -> Reply:
    """A stream has the order of the profile that claims it last."""
    reply = CLAIM_LEASE(store, stream_id, order=order, **claim)
    if reply.is_done and order == "index":
        sets(store, stream_id, {"order": {"S": order}})
    return replace_order(reply, order)


def orders_as_its_profile_says(requests: Requests, step: Claim) -> Claimed | ClaimRefused | RestOwed:
    """Events go into the index where the profile of the version that runs says so."""
    answer = CLAIM(requests, step)
    requests._policy = replace(requests._policy, order=requests._profile.order)
    return answer


def says_nothing(store: Store, stream_id: str, *, order: Order = "index", **claim: Any) -> Reply:
    """A claim leaves no trace of an order that is gone."""
    return replace_order(CLAIM_LEASE(store, stream_id, **claim), order)


def replace_order(reply: Reply, order: Order) -> Reply:
    """The reply as if the control record had this order."""
    return reply._replace(record=replace(reply.record, order=order))


OF_THE_ORDER = [
    Defect(
        "keys are read one partition after the other",
        {"misread"},
        function=(
            "handlers.store.event_reader.heapq",
            SimpleNamespace(merge=lambda *items, key: itertools.chain(*items)),  # noqa: ARG005
        ),
        among=lambda schedule: has_no_order(schedule) and schedule.partitions > 1,
    ),
    Defect(
        "a stream gets its order back",
        {"misread"},
        function=("handlers.store.connection_store.Store.claim", gives_the_order_back),
        among=may_change,
    ),
    Defect(
        "a stream without an order pays for one",
        {"misplaced"},
        function=("handlers.store.requests.Requests._claim", orders_as_its_profile_says),
        among=may_change,
    ),
    Defect(
        "events leave the index before the lease says so",
        {"misread", "misplaced"},
        function=("handlers.store.connection_store.Store.claim", says_nothing),
        among=has_no_order,
    ),
]
