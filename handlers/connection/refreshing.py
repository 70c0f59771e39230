"""Decides which refresh token to send if the token server replaces it at each use (RFC 6749, section 6).

    Call(read)  -> Replacement("r6", 5)       None: the secret's own was never replaced
    Ask("r6")   -> {"access_token": …, "refresh_token": "r7"}
    Call(write) -> Replacement("r7", 6)

Functions that refresh at the same time read the same token. The first write wins; if the server refuses the other
function, that one reads again and sends the winner's token. Invariant: a refresh token is sent only after the stored
one was read, so no replaced token is sent again: many servers take that for a theft and revoke all tokens that descend
from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator
from typing import Any

from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import Answer, Ask, Call, Replacement, Replacements, is_visible

# How many times in a row storing a new token is tried, each time with the client's own retries.
TRIES = 3


def name_of(address: str, client: str, first: str) -> str:
    """Returns the name under which replacements of the secret's value `first` are stored: a digest of all three.

    Profiles with the same secret share it; a changed secret makes another name.
    """
    return hashlib.sha256(json.dumps([address, client, first]).encode()).hexdigest()


def refreshed(
    stored: Replacements, unsaved: dict[str, Replacement], name: str, first: str, ask: Callable[[str], Ask]
) -> Generator[Ask | Call, Any, Answer | Closed]:
    """Returns the token server's answer to a refresh; Closed if it is unknown now which refresh token to send.

    `unsaved` has the tokens that this process could not store yet; they are stored before the next refresh.
    """
    # A token that an earlier refresh could not store is stored first: the stored one is void.
    row: Replacement | Closed | None = (
        yield _save(stored, name, unsaved[name]) if name in unsaved else _read(stored, name)
    )
    if isinstance(row, Closed):
        return row
    unsaved.pop(name, None)
    sent = first if row is None else row.token
    answer: Answer | Closed = yield ask(sent)
    if _field(answer, "error") == "invalid_grant":
        newer: Replacement | Closed | None = yield _read(stored, name)
        if isinstance(newer, Replacement) and newer.token != sent:
            row, sent = newer, newer.token
            answer = yield ask(sent)
    token = _field(answer, "refresh_token")
    if isinstance(token, str) and token != sent and is_visible(token):
        unsaved[name] = Replacement(token, 1 if row is None else row.version + 1)
        for _ in range(TRIES):
            if not isinstance((yield _save(stored, name, unsaved[name])), Closed):
                del unsaved[name]
                break
    return answer


def _read(stored: Replacements, name: str) -> Call:
    return Call(lambda: stored.read(name))


def _save(stored: Replacements, name: str, newer: Replacement) -> Call:
    return Call(lambda: stored.write(name, newer))


def _field(answer: Answer | Closed, name: str) -> Any:
    body = answer.json if isinstance(answer, Answer) else None
    return body.get(name) if isinstance(body, dict) else None
