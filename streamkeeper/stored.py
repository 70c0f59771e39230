"""The stored events of a stream, a page at a time: to iterate over, or as one table."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamkeeper import dataframes
from streamkeeper.event import Event, event_of

Pages = Callable[[], Iterator[dict[str, Any]]]
# The most entries that the API puts into a page.
MOST = 1000


def pages(
    ask: Callable[[dict[str, Any]], dict[str, Any]], query: Mapping[str, Any], left: int | None = None
) -> Iterator[dict[str, Any]]:
    """The pages of a list, of `left` entries in all at most; `ask` sends the query and returns the answer's JSON."""
    after = query.get("after")
    while left is None or left > 0:
        page = ask({**query, "after": after, "limit": MOST if left is None else min(left, MOST)})
        yield page
        left = None if left is None else left - len(page["events"])
        after = page["next"]
        if after is None:
            return


class StoredEvents:
    """Events that are fetched as they are iterated over, again each time; a page of at most 1,000 is held at once."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def __iter__(self) -> Iterator[Event]:
        for page in self._pages():
            yield from map(event_of, page["events"])

    def to_arrow(self) -> Any:
        """All of them as a pyarrow.Table, in memory; raises StreamkeeperError where pyarrow is not installed."""
        dataframes.imported("pyarrow")
        return dataframes.arrow(page["events"] for page in self._pages())

    def to_pandas(self) -> Any:
        """All of them as a pandas.DataFrame, in memory; raises StreamkeeperError where pandas is not installed."""
        dataframes.imported("pandas")
        return dataframes.pandas(page["events"] for page in self._pages())
