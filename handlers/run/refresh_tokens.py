"""Stores the refresh tokens with which token servers have replaced those in secrets, each as an item of the control
table.

    PK "#", SK "refresh-token#" and the digest of the secret's value     refresh_token, version, expires_at

The table is encrypted at rest. The item is in no stream's partition, so neither a status nor a backup has it.
Invariants: a token is stored only over the version that it descends from; nothing raises, and no message has a token.
"""

from __future__ import annotations

import time
from typing import Any

from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import Replacement
from handlers.errors import StoreUnavailable
from handlers.group import GROUP
from handlers.store import typed_values
from handlers.store.control_table import Table, set_clause, values_of
from handlers.store.typed_values import DAY_S, Item, number_value

# A token that was not replaced for this long is deleted; so are, in time, the tokens of changed secrets.
KEEP_DAYS = 400


class RefreshTokens:
    """The control table's refresh tokens; several threads may use it."""

    def __init__(self, dynamodb: Any, control_table: str) -> None:
        self._table = Table(dynamodb, control_table)

    def read(self, name: str) -> Replacement | Closed | None:
        """Returns the newest, read consistently; None if the secret's own was never replaced."""
        try:
            return _replacement(self._table.get(GROUP, _sort_key(name)))
        except StoreUnavailable as error:
            return Closed("no_token", f"the stored refresh token cannot be read now: {error}")

    def write(self, name: str, newer: Replacement) -> Replacement | Closed:
        """Returns what is stored: `newer`, or what another function has stored over the same version before."""
        attributes = {
            "refresh_token": {"S": newer.token},
            "version": number_value(newer.version),
            "expires_at": number_value(int(time.time()) + KEEP_DAYS * DAY_S),
        }
        values = values_of(attributes) | {":before": number_value(newer.version - 1)}
        condition = "attribute_not_exists(#version) OR #version = :before"
        place = typed_values.item_key(GROUP, _sort_key(name))
        try:
            _, item = self._table.try_update(place, set_clause(tuple(attributes)), condition, values)
        except StoreUnavailable as error:
            return Closed("no_token", f"the refresh token cannot be stored now: {error}")
        return _replacement(item) or newer


def _sort_key(name: str) -> str:
    return f"refresh-token#{name}"


def _replacement(item: Item | None) -> Replacement | None:
    token = typed_values.read_text(item or {}, "refresh_token")
    return None if token is None else Replacement(token, typed_values.read_int(item or {}, "version") or 0)
