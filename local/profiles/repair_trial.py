"""The work of `profile try --repair`: requests from the address what the stream has just brought, and compares both."""

import time
from collections.abc import Callable, Sequence

from handlers.api.verdict import plural
from handlers.framing.events import StreamEvent, canonical_json
from handlers.profile.addresses import ProfileError
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.repair.gap_edges import is_named
from handlers.repair.gap_ports import fetch
from handlers.repair.pages import BadPage, is_end, numbered, page_request
from handlers.repair.pages import read as read_page
from handlers.repair.walking import PATIENT_S, PATIENT_TIMES
from local.terminal import printable

# The request lies between an event at each end, and something must lie between them.
LEAST_EVENTS = 3
MOST_SHOWN = 3


def compare_with_address(
    profile: Profile, stream_id: str, seen: Sequence[StreamEvent], secrets: Secrets, say: Callable[[str], None]
) -> bool:
    """Returns whether the address has the stream's events under the same keys; `say` prints the differences."""
    field = profile.repair
    assert field is not None
    events = [*{event.key: event for event in seen if field.key == "hash" or is_named(event)}.values()]
    if len(events) < LEAST_EVENTS:
        say(
            f"repair: {LEAST_EVENTS} events of the stream are needed to compare, and {len(events)} came; "
            "read for longer"
        )
        return False
    time.sleep(field.after_s)
    edges = {"after": events[0].key, "before": events[-1].key}
    times = (events[0].received_at_ms - 5_000, events[-1].received_at_ms + 5_000)
    edges |= dict(zip(("from", "to"), map(field.time.instant_text, times), strict=True))
    address = numbered(field, field.address_for(stream_id, edges, secrets), 0)
    items, pages, patience = dict[str, StreamEvent](), 0, PATIENT_TIMES
    wanted = {event.key: event for event in events[1:-1]}
    # Beyond its far edge an address that is bounded at one edge goes on and on.
    bounded = (("before", {"after", "from"}), ("after", {"before", "to"}))
    far = next((edges[end] for end, bounds in bounded if field.edges <= bounds), None)
    while address and pages < field.pages and not (far in items and wanted.keys() <= items.keys()):
        try:
            answer = fetch(page_request(profile, field, address, secrets))
            if answer.problem and patience and 0 < (answer.retry_after_s or 0) <= PATIENT_S:
                patience -= 1
                time.sleep(answer.retry_after_s or 0)
                continue
            if is_end(field, pages, answer):
                break
            if answer.problem:
                raise BadPage(answer.problem)
            read = read_page(field, address, pages, answer, 0)
        except (BadPage, ProfileError) as problem:
            say(f"repair: {problem}")
            return False
        items |= {event.key: event for event in read.events}
        address, pages = read.next if read.next != address else "", pages + 1
        time.sleep(field.pace_s)
    common = wanted.keys() & items.keys()
    ends = _keys_in_words(events[:1] + events[-1:])
    say(f"repair: the address has {len(common)} of {plural(len(wanted), 'event')} between {ends}")
    others = items.keys() - {event.key for event in events}
    for name, keys in (("only on the stream", wanted.keys() - common), ("only at the address", others)):
        if keys:
            say(
                f"repair: {name}: {', '.join(map(printable, sorted(keys)[:MOST_SHOWN]))}"
                f"{' …' if len(keys) > MOST_SHOWN else ''}"
            )
    differ = [key for key in sorted(common) if not _have_same_body(wanted[key], items[key])]
    if differ:
        say(f"repair: bodies differ, such as that of {printable(differ[0])}: repaired events get the address's body")
    own, other = ([key for key in keys if key in common] for keys in (wanted, items))
    if other not in (own, own[::-1]):
        say("repair: the address has them in another order than the stream")
    has_edges = edges["after"] in items and edges["before"] in items
    say(f"repair: the address {'repeats' if has_edges else 'leaves out'} the events at the ends of the request")
    return len(common) == len(wanted)


def _keys_in_words(events: Sequence[StreamEvent]) -> str:
    return " and ".join(printable(event.key) for event in events)


def _have_same_body(one: StreamEvent, other: StreamEvent) -> bool:
    bodies = [canonical_json(event.data) for event in (one, other) if isinstance(event.data, str | bytes)]
    return len(bodies) == 2 and bodies[0] == bodies[1]
