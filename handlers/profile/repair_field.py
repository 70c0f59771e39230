"""Parses `repair`: where a REST address beside the stream has what a gap has missed, and how to request it.

    repair = { address = "https://rest.example/trades?after={after}&before={before}", items = "$.trades",
               key = "$.id", next = { cursor = "$.next", query = "after" } }

In the address, placeholders stand for the edges of a gap: `{after}` and `{before}` for the keys of the last event
before it and the first one after it, `{from}` and `{to}` for instants before and after it, in the unit of `time_unit`.
Invariant: a `Repair` that is returned without a note in `Fields` is valid.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from urllib.parse import urlsplit

from handlers.framing.events import JsonPath, Rule, parse_path
from handlers.framing.selection import Keep
from handlers.framing.splitting import ELEMENT, Split
from handlers.profile import addresses
from handlers.profile.addresses import check_address, expand_variable, quote_value
from handlers.profile.checked_fields import A_PATH, TEXT, Fields, duration, integer, number
from handlers.profile.secret_references import Reference, Secrets, fill_references, mask_references, references
from handlers.profile.sections import headers, query
from handlers.profile.split_field import list_path
from handlers.profile.time_field import OwnTime, own_time
from handlers.values import dataclass

_EDGE = re.compile(r"\{(after|before|from|to)\}")
_ITEMS = list_path('must be a JSON path of names such as "$.trades", or "$" if the answer is the list')
MOST_PAGES = 100


@dataclass(frozen=True, slots=True)
class NextPage:
    """Where the next page is: at a cursor in the answer, in its Link header, or by counting pages.

    A cursor goes into the query parameter `query`; if that is "", the cursor is itself an address. The parameter
    `number` begins with `first` and grows by `step`: 1 counts pages, more counts the items of a full page.
    """

    cursor: JsonPath | None = None
    query: str = ""
    link: str = ""
    number: str = ""
    first: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True)
class Repair:
    """How to fetch what a gap has missed; docs/repair.md explains each field.

    `key` is read in an answer that holds only one item, as `split` makes it, and `time` in the item; its unit is also
    that of the address. `keep` are the stream's own rules, as far as an item shows whether it fits; none keep all.
    """

    address: str = field(repr=False)
    split: Split
    key: Rule
    time: OwnTime
    next: NextPage | None
    headers: tuple[tuple[str, str], ...] | None = field(repr=False)
    pace_s: float
    after_s: float
    reach_s: float
    pages: int
    unproved: str
    keep: tuple[Keep, ...] = ()

    @property
    def edges(self) -> frozenset[str]:
        """Which placeholders the address has: after, before, from, to."""
        return frozenset(_EDGE.findall(self.address))

    @property
    def is_keyed_by_time(self) -> bool:
        """Whether no two items can share an instant: it is their key."""
        return self.time.path is not None and self.key == _within_item(self.time.path, self.split)

    @property
    def mark(self) -> str:
        """Changes with the pages that a walk requests, and with what is read in them."""
        return sha256(repr((self.address, self.split.path, self.key, self.next)).encode()).hexdigest()[:16]

    @property
    def after_ms(self) -> int:
        """How long after the end of a gap the address has what the stream had."""
        return round(self.after_s * 1000)

    @property
    def reach_ms(self) -> int:
        """How far back the address goes."""
        return round(self.reach_s * 1000)

    @property
    def secrets(self) -> list[Reference]:
        """The secrets that a request needs, except those of the stream's own headers."""
        texts = [self.address.partition("?")[2], *(value for _, value in self.headers or ())]
        return sorted({reference for text in texts for reference in references(text)})

    def address_for(self, stream_id: str, edges: Mapping[str, str], secrets: Secrets) -> str:
        """Returns the address of the first page; `edges` has a text for each edge that the address has."""
        # Each value is filled in once: nothing in it is taken for a placeholder.
        pieces = _EDGE.split(self.address)
        filled = [
            quote_value(edges[piece])
            if number % 2
            else fill_references(addresses.fill_in(piece, stream_id, quote_value), secrets, quote_value)
            for number, piece in enumerate(pieces)
        ]
        return "".join(filled)


def repair(
    fields: Fields,
    own_key: Rule,
    split: Split | None,
    variables: Mapping[str, str],
    streams_time: OwnTime | None = None,
    own_keep: Sequence[Keep] = (),
) -> Repair | None:
    """Returns how gaps are repaired; None if the field is absent. The other arguments are the stream's own."""
    inner = fields.table("repair", 'a table such as { address = "https://...", items = "$.items" }')
    if inner is None:
        return None

    def check(text: str) -> str:
        address = expand_variable(text, variables)
        check_address(_EDGE.sub("x", mask_references(address)))
        if _EDGE.search(urlsplit(address).netloc):
            raise addresses.ProfileError("may contain {after}, {before}, {from} and {to} only in its path and query")
        references(address.partition("?")[2])
        return address

    address = inner.read_checked("address", check)
    query(inner, address)
    edges = frozenset(_EDGE.findall(address))
    if address and not edges:
        inner.add_problem(
            "address", "must contain {after} or {before}, the keys at the edges of a gap, or {from} and {to}"
        )
    items = Split(inner.read_required("items", _ITEMS) or JsonPath("$", ()))
    name = inner.read("name", A_PATH) or next(iter(own_paths(split.name, split) if split and split.name else ()), None)
    items = Split(items.path, name=name and _within_item(name, items))
    parsed = Repair(
        address=address,
        split=items,
        key=_key(inner, items, own_key, split, by_key=bool(edges & {"after", "before"})),
        time=own_time(inner, streams_time),
        next=_next(inner),
        headers=headers(inner) if inner.has("headers") else None,
        pace_s=inner.read("pace_s", number(above=-1, most=60), 0.2),
        after_s=inner.read("after_s", duration(3600), 5),
        reach_s=inner.read("reach_s", duration(31_536_000), 86_400),
        pages=inner.read("pages", integer(10_000), MOST_PAGES),
        unproved=inner.read("unproved", TEXT, ""),
        keep=_keep(own_keep, split, has_names=name is not None),
    )
    inner.refuse_unknown(
        "repair: address, items, key, name, time, time_unit, next, headers, pace_s, after_s, reach_s, pages, unproved"
    )
    return parsed


def _within_item(path: JsonPath, items: Split) -> JsonPath | None:
    return items.path_of(f"{items.path.text}{ELEMENT}{path.text[1:]}")


def own_paths(key: Rule, split: Split | None) -> tuple[JsonPath, ...]:
    """Returns the paths of the stream's dedup key within an event; none if the key has no path into it."""
    if isinstance(key, str):
        return ()
    paths = (key,) if isinstance(key, JsonPath) else key
    if split is None:
        return paths
    of_element = f"{split.path.text}{ELEMENT}"
    inside = [parse_path(f"${one.text.removeprefix(of_element)}") for one in paths if one.text.startswith(of_element)]
    found = tuple(path for path in inside if path is not None)
    return found if len(found) == len(paths) else ()


def _key(inner: Fields, items: Split, own_key: Rule, split: Split | None, *, by_key: bool) -> Rule:
    """Returns the key of an item: as many paths as the stream's own key has, which are the default."""
    value = inner.take("key")
    own = own_paths(own_key, split)
    if own_key == "each":
        inner.add_problem("", 'cannot be combined with key = "each", which recognizes no event that comes again')
    if own_key == "hash":
        if value is not None:
            inner.add_problem("key", "must be left out: the stream's key is the hash of an event, so an item's is too")
        if by_key:
            inner.add_problem(
                "address", "must contain {from} and {to}: the stream's key is a hash, which no upstream can look up"
            )
        return "hash"
    texts = [one.text for one in own] if value is None else value if isinstance(value, list) else [value]
    paths = [parse_path(one) if isinstance(one, str) else None for one in texts]
    moved = [None if path is None else _within_item(path, items) for path in paths]
    count = len(own_key) if isinstance(own_key, tuple) else 1
    if None in moved or len(moved) != count:
        shape = 'a JSON path such as "$.id"' if count == 1 else f"a list of {count} JSON paths"
        inner.add_problem("key", f"must be {shape}, like the stream's own key, which leads into an item")
        return "hash"
    sound = tuple(path for path in moved if path is not None)
    return sound if isinstance(own_key, tuple) else sound[0]


def _keep(rules: Sequence[Keep], split: Split | None, *, has_names: bool) -> tuple[Keep, ...]:
    """Returns the rules without the parts that no item shows: a name, and a place outside the stream's list."""
    shown = tuple(_shown(rule, split, has_names) for rule in rules)
    return () if Keep() in shown else shown


def _shown(rule: Keep, split: Split | None, has_names: bool) -> Keep:
    path, names = rule.path, rule.names if has_names else frozenset[str]()
    if path is None or (split is not None and not split.is_of_element(path)):
        return Keep(names)
    inside = 0 if split is None else len(split.path.steps) + 1
    return Keep(names, JsonPath(path.text, path.steps[inside:]), rule.values)


_SHAPES = '{ cursor = "$.next", query = "after" }, { link = "next" } or { number = "page" }'


def _next(inner: Fields) -> NextPage | None:
    table = inner.table("next", _SHAPES)
    if table is None:
        return None
    cursor, link, count = table.read("cursor", A_PATH), table.read("link", TEXT, ""), table.read("number", TEXT, "")
    query, step = table.read("query", TEXT, ""), table.read("step", integer(10_000), 1)
    first = table.read("first", integer(1_000_000, least=0), 1 if step == 1 else 0)
    if sum(map(bool, (cursor, link, count))) != 1 or (query and cursor is None):
        table.add_problem("", f"must be one of {_SHAPES}")
    table.refuse_unknown("next: cursor and query, link, or number, first and step")
    return NextPage(cursor, query, link, count, first, step)


def unintended_notes(repair: Repair, own_key: Rule, split: Split | None, own_keep: Sequence[Keep]) -> Iterator[str]:
    """Yields what may not be intended: another key than the stream's own, and a rule of `keep` that no item shows."""
    key = repair.key
    if not isinstance(key, str):
        own = [path.text for path in own_paths(own_key, split)]
        items = [f"${one.text.partition(ELEMENT)[2]}" for one in ((key,) if isinstance(key, JsonPath) else key)]
        words = ", ".join(own) or ("the last event ID" if own_key == "id" else "its own")
        if items != own:
            words = f"an item is named by {', '.join(items)}, an event of the stream by {words}"
            yield f"{words}: `profile try --repair` compares"
    if _keep(own_keep, split, has_names=True) != repair.keep:
        yield "keep selects events by name, and repair has no name, so items of every name are stored"
    elif any(rule.path is not None and split is not None and not split.is_of_element(rule.path) for rule in own_keep):
        yield "keep selects events by a place outside the list of split, which no item of repair has"
