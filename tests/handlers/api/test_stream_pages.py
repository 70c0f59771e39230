"""Pages of streams: which ids one answer holds, and where the next one begins."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.api.connection_records import Records
from handlers.api.last_error import Retries
from handlers.api.stream_pages import page
from handlers.connection.lease import Lease

IDS = st.lists(st.text("ab:", min_size=1, max_size=3), unique=True).map(sorted)


@given(IDS, st.integers(1, 4), st.sets(st.text("ab:", min_size=1, max_size=3)), st.booleans())
def test_pages_hold_each_stream_once(ids: list[str], limit: int, gone: set[str], is_late: bool) -> None:
    """Whatever ids, limit and haste: page behind page all come in order, but those that are gone by now."""

    def read(stream_id: str) -> Records | None:
        return None if stream_id in gone else Records(Lease(), None, None, [])

    shown: list[str] = []
    after: str | None = ""
    while after is not None:
        asked = [one for one in ids if one > after][: limit + 1]
        answer = page(asked, read, limit, 0, 0, Retries(0, 0), lambda: is_late)
        assert len(answer["streams"]) <= limit
        shown += [one["stream"] for one in answer["streams"]]
        after = answer["next"]
    assert shown == [one for one in ids if one not in gone]
