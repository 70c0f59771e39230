"""Reads the query of a request for a page: where the page begins, and how many entries it may have.

Invariant: a query is understood whole or not at all; a parameter that is malformed or unknown is one sentence that
names it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = re.compile(r"[0-9]{1,4}")


class BadQuery(ValueError):
    """The query cannot be answered; the message is one sentence that names the parameter."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page: at most `limit` entries behind the place `after`, "" for the beginning."""

    after: str
    limit: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What the parameters of one list may be: how a place looks, and in words; the usual and the greatest limit."""

    place: re.Pattern[str]
    place_is: str
    limit: int
    most: int

    def read(self, query: object) -> PageRequest:
        """What the query's parameters say; raises BadQuery. None is a query without parameters."""
        parameters = dict(query) if isinstance(query, Mapping) else {}
        after, limit = str(parameters.pop("after", "")), str(parameters.pop("limit", self.limit))
        if parameters:
            raise BadQuery("the query has a parameter that is not known: there are after and limit")
        if after and not self.place.fullmatch(after):
            raise BadQuery(f"the parameter after must be {self.place_is}")
        if not (_NUMBER.fullmatch(limit) and 1 <= int(limit) <= self.most):
            raise BadQuery(f"the parameter limit must be a whole number from 1 to {self.most}")
        return PageRequest(after, int(limit))
