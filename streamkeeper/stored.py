"""The stored events of a stream, a page at a time: to iterate over, or as one table."""

from collections.abc import Callable, Iterator
from typing import Any

from streamkeeper import dataframes
from streamkeeper.event import Event, event_of

Pages = Callable[[], Iterator[dict[str, Any]]]


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
