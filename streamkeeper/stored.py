"""The stored events of a stream, a page at a time: to iterate over, or as one table."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamkeeper import dataframes
from streamkeeper.event import Event, event_of

# The most entries that the API puts into a page.
MOST = 1000


def pages(
    ask: Callable[[dict[str, Any]], dict[str, Any]], query: Mapping[str, Any], left: int | None = None
) -> Iterator[dict[str, Any]]:
    """The pages of a list, with at most `left` entries in all; `ask` sends the query and returns the answer's JSON."""
    after = query.get("after")
    while left is None or left > 0:
        page = ask({**query, "after": after, "limit": MOST if left is None else min(left, MOST)})
        yield page
        left = None if left is None else left - len(page["events"])
        after = page["next"]
        if after is None:
            return


class StoredEvents:
    """Events of a stream that each iteration fetches again, a page of at most 1,000 at a time.

    `pages` yields the events in order: lists of them in the API's JSON, and an archive's as Arrow's record batches.
    """

    def __init__(self, stream_id: str, pages: Callable[[], Iterator[Any]]) -> None:
        self._stream_id, self._pages = stream_id, pages

    def __iter__(self) -> Iterator[Event]:
        for page in self._event_lists():
            yield from (event_of(self._stream_id, raw) for raw in page)

    def batches(self) -> Iterator[Any]:
        """All events as pyarrow.RecordBatches of up to 1,000; only a few are in memory at a time."""
        dataframes.import_package("pyarrow")
        for page in self._pages():
            yield dataframes.batch(page) if isinstance(page, list) else page

    def to_arrow(self) -> Any:
        """All events as a pyarrow.Table, in memory; raises StreamkeeperError if pyarrow is not installed."""
        return dataframes.import_package("pyarrow").Table.from_batches(self.batches(), schema=dataframes.schema())

    def to_pandas(self) -> Any:
        """All events as a pandas.DataFrame, in memory; raises StreamkeeperError if pandas is not installed."""
        dataframes.import_package("pandas")
        return dataframes.pandas(self._event_lists())

    def _event_lists(self) -> Iterator[list[dict[str, Any]]]:
        for page in self._pages():
            yield page if isinstance(page, list) else [dataframes.event_json(row) for row in page.to_pylist()]
