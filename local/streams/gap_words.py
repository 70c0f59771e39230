"""Says in words what came of the repair of a gap, for the verbs `gaps` and `repair`."""

from typing import Any

from handlers.api.verdict import counted
from local.streams.asking import local_time


def repair_words(repair: dict[str, Any]) -> str:
    """What came of the repair of a gap, in words that go on behind its state."""
    said = [f"{counted(repair['stored'], 'event')} came"] if repair["stored"] else []
    said += [repair["reason"]] if repair["reason"] else []
    said += [f"tried again {local_time(repair['next_at'])}"] if repair["next_at"] else []
    return f": {'; '.join(said)}" if said else ""
