"""`streamkeeper profile check`, and the page that explains the fields."""

import json
from pathlib import Path
from typing import Any

import pytest

from handlers.profile.behaviour import Profile
from local.cli import main
from tests.local.support import PROJECT

ADDRESS = b'framing = "sse"\naddress = "%s"\n'
SOUND = ADDRESS % b"https://example.org/"
CALLED = "must be called NAME.toml, where NAME is 1 to 64 of the characters A-Z a-z 0-9 . _ -"
FAULTS = [
    "the profile 'wrong': address must begin with http://, https://, ws:// or wss:// and a host",
    "the profile 'wrong': stall_s is not a field of a profile; docs/profiles.md lists them all; "
    "did you mean stall_after_s?",
]
MARKS = {"heartbeat", "end", "loss", "disconnect", "snapshot"}


def test_every_problem_of_every_file_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each problem is one line with the file, the field and what would be right; the status is 1."""
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('framing = "csv"\nextra = 1\naddress = "${UPSTREAM_X}/a"\n')
    two.write_text("framing =\n")
    assert main(["profile", "check", str(one), str(two)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{one}: the profile 'one': framing must be one of sse, ndjson, json-seq, length, raw, websocket",
        f"{one}: the profile 'one': extra is not a field of a profile; docs/profiles.md lists them all",
        f"{two}: is not valid TOML: Invalid value (at line 1, column 10)",
    ]


NOBODY_SAID = (
    "it is unknown whether the upstream keeps what it has sent, so a gap stays open in the ledger; "
    'if it does, write resume = { header = "Last-Event-ID" }'
)
CANNOT = "it cannot resume: every interval without a connection is a gap that stays open"
LINES = b'framing = "ndjson"\naddress = "https://example.org/"\n'


LOST = "does not resume: what comes while it is not connected is lost"
BY_ID = "resumes with the last event ID in the"
SINCE = SOUND + b'resume = { query = "since" }\n'
IN_A_LOG = "it stores in a log: an event waits for others for 2 s at most, and its key is remembered for 900 s"
NO_INDEX = "it stores items without an index: half the write units, and they are read by key, not by arrival"
FORGETS = "flush_s is as long as the upstream remembers: a new connection may request what it has forgotten"
NO_ORDER = 'with order = "none" events are read by key, and these keys have no order: no reader can follow'
TWICE = 'with key = "each" an event that two connections deliver is stored twice'
PLACE = "if it is meant as a field of the profile, move it above the first [table]"
BELOW = f"headers.overlap is in the table headers; {PLACE}"
TICKET = b'ticket = { address = "https://example.org/key", path = "$.key" }\n'
NOWHERE = "a ticket is requested before each opening and never sent, because no field holds {ticket}"
ONCE = "is requested once ({}): no handover; an answer that ends without its end mark is broken, with an alert"
SOCKET = b'framing = "websocket"\naddress = "wss://example.org/"\n'
STOMP = "STOMP over a WebSocket is not read: docs/not-read.md says what to do"
NO_END = "it is requested once (again = false) and has no end mark, so every answer ends as broken"
OWN_NAMES = b"""
tls = { ca = "${secret:ca}", certificate = "${secret:c}", key = "${secret:k}" }
token = { kind = "client_credentials", address = "https://a.example/t", id = "${secret:i}", secret = "${secret:s}" }
heartbeat = { event = "ping", cursor = "$.a", first_cursor = "$.b" }
repair = { address = "https://a.example/?after={after}", items = "$.a", key = "$.id" }
key = "$.id"
"""
HOOK = b'[[deliver]]\nwebhook = "http://127.0.0.1:8080/"\nallow_private = true\nsecret = "${secret:hook}"'


@pytest.mark.parametrize(
    ("text", "says", "warnings"),
    [
        (SOUND, f"{BY_ID} header Last-Event-ID (the default of server-sent events)", [NOBODY_SAID]),
        (SINCE, f"{BY_ID} query parameter since", []),
        (
            SOUND + b'resume = { query = "since", reach_s = 2 }\nstore = "log"\nflush_s = 2',
            f"{BY_ID} query parameter since; {IN_A_LOG}",
            [FORGETS],
        ),
        (SINCE + b'order = "none"\nkey = "hash"', f"{BY_ID} query parameter since; {NO_INDEX}", [NO_ORDER]),
        (SINCE + TICKET, f"{BY_ID} query parameter since", [NOWHERE]),
        (SINCE + TICKET + b'headers = { X-Key = "{ticket}" }', f"{BY_ID} query parameter since", []),
        (SINCE + HOOK, f"{BY_ID} query parameter since", []),
        (SOUND + b'resume = "none"', LOST, [CANNOT]),
        (LINES + b'cursor = "$.n"', LOST, [f"{CANNOT}; $.n is saved as the cursor and never sent"]),
        (
            LINES
            + b'cursor = "$.n"\nmethod = "POST"\nagain = true\nbody = "{}"\n'
            + b'resume = { body = "/a/b", pattern = "<{cursor}" }',
            "resumes with <$.n at /a/b of the body",
            [],
        ),
        (
            LINES + b'cursor = "$.n"\nkey = "each"\nresume = { query = "n" }\n[headers]\noverlap = "evicts"',
            "resumes with $.n in the query parameter n",
            [TWICE, BELOW],
        ),
        # These names belong into the table that has them, even if a field of the profile has them too.
        (SINCE + OWN_NAMES, f"{BY_ID} query parameter since", []),
        (SOUND + b'method = "POST"', ONCE.format("a POST is repeated only with again = true"), [NO_END]),
        (SOCKET + b'headers = { Sec-WebSocket-Protocol = "v12.stomp" }', LOST, [CANNOT, STOMP]),
        (SOCKET + b'headers = { Sec-WebSocket-Protocol = "graphql-transport-ws" }', LOST, [CANNOT]),
        (SOUND + b"again = false", ONCE.format("again = false"), [NO_END]),
    ],
)
def test_a_valid_profile_prints_how_its_stream_resumes(
    tmp_path: Path, text: bytes, says: str, warnings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """For a valid profile the command prints how it resumes, and its warnings; only --strict makes them problems."""
    path = tmp_path / "one.toml"
    path.write_bytes(text)
    assert main(["profile", "check", str(path)]) == 0
    lines = [f"{path}: valid; it {says}", *(f"  warning: {warning}" for warning in warnings)]
    assert capsys.readouterr() == ("\n".join([*lines, ""]), "")
    assert main(["profile", "check", "--strict", str(path)]) == bool(warnings)


def test_a_misplaced_field_gets_a_warning_that_names_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile's field below a table gets a warning even if the profile is invalid, because its value is correct."""
    path = tmp_path / "one.toml"
    path.write_bytes(
        SOUND
        + b'[resume]\nheader = "a"\nstall_after_s = 3\n[[heartbeat]]\nevent = "ping"\ncursor = "$.a"\nkey = "id"\n'
    )
    assert main(["profile", "check", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"  warning: resume.stall_after_s is in the table resume; {PLACE}",
        f"  warning: heartbeat.key is in the table heartbeat; {PLACE}",
    ]
    assert [line.partition("': ")[2].partition(" ")[0] for line in printed.err.splitlines()] == [
        "resume.stall_after_s",
        "heartbeat",
    ]


def test_the_json_has_the_same_findings_as_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, standard output has one JSON object and nothing else, whatever is wrong; the status is the same."""
    paths = [tmp_path / f"{name}.toml" for name in ("sound", "lines", "wrong", "missing")]
    for path, text in zip(paths, (SOUND, LINES, ADDRESS % b"ftp://a" + b"stall_s = 1", b""), strict=True):
        path.write_bytes(text)
    paths[-1].unlink()
    resume = {"in": "header", "name": "Last-Event-ID", "cursor": "id", "is_default": True}
    sound: dict[str, Any] = {"sound": True, "store": "items", "order": "index", "errors": []}
    unsound: dict[str, Any] = {"sound": False, "store": None, "order": None, "resume": None, "warnings": []}
    wanted = [
        {"name": "sound", **sound, "resume": resume, "warnings": [NOBODY_SAID]},
        {"name": "lines", **sound, "resume": None, "warnings": [CANNOT]},
        {"name": "wrong", **unsound, "errors": FAULTS},
        {"name": "missing", **unsound, "errors": [f"{paths[-1]} cannot be read: No such file or directory."]},
    ]
    for count, status in ((1, 0), (2, 0), (3, 1), (4, 2)):
        assert main(["profile", "check", "--json", *map(str, paths[:count])]) == status
        printed = capsys.readouterr()
        files = [{"file": str(path), **one} for path, one in zip(paths, wanted, strict=True)]
        assert (json.loads(printed.out), printed.err) == ({"files": files[:count]}, "")


def test_a_profile_is_checked_by_its_name_and_without_a_name_all_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A name is that of a profile in env/streams; without a name, all of them are checked."""
    assert main(["profile", "check", "demo"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("demo.toml: valid; it resumes with the last event ID in the header Last-Event-ID")
    assert main(["profile", "check"]) == 0
    sound = [line.partition(".toml: valid;")[0] for line in capsys.readouterr().out.splitlines() if ": valid;" in line]
    assert {Path(name).name for name in sound} == {path.stem for path in (PROJECT / "env" / "streams").glob("*.toml")}


LINK_LOCAL = "address leads to a link-local address, which is never allowed"
PRIVATE = "address leads to a private address, which the profile does not allow"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("bare", b'address = "https://example.org/"', "the profile 'bare': framing is missing"),
        ("a b", SOUND, CALLED),
        ("nested", b"a = " + b"[" * 5000, "is not valid TOML: "),
        ("hex", ADDRESS % b"http://0xa9.0xfe.0xa9.0xfe./", LINK_LOCAL),
        ("mapped", ADDRESS % b"http://[::ffff:a9fe:a9fe]/", LINK_LOCAL),
        ("private", ADDRESS % b"http://10.0.0.1/", PRIVATE),
        ("ticket", SOUND + b'ticket = { address = "https://169.254.1.1/", path = "$.k" }\n', f"ticket.{LINK_LOCAL}"),
        ("secret", SOUND + b'headers = { Authorization = "Bearer k3y" }\n', "contains 'Authorization' in plain text"),
    ],
)
def test_a_bad_file_gets_a_sentence(
    tmp_path: Path, name: str, text: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid file gets one line on standard error, without a secret; the exit status is 1."""
    path = tmp_path / f"{name}.toml"
    path.write_bytes(text)
    assert main(["profile", "check", str(path)]) == 1
    printed = capsys.readouterr()
    (said,) = printed.err.splitlines()
    assert (printed.out, said.startswith(f"{path}: "), sentence in said) == ("", True, True)
    assert "k3y" not in printed.err


def test_an_unreadable_file_is_named_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, bytes, an endless file and a missing one get a sentence each, and exit status 2."""
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "empty.toml").write_text("")
    names = ("folder", "bytes", "zero", "none", "empty")
    assert main(["profile", "check", *(str(tmp_path / f"{name}.toml") for name in names)]) == 2
    assert [line.replace(str(tmp_path), "") for line in capsys.readouterr().err.splitlines()] == [
        "streamkeeper: /folder.toml cannot be read: Is a directory.",
        "streamkeeper: /bytes.toml cannot be read: it is not UTF-8 text.",
        "streamkeeper: /zero.toml cannot be read: it is larger than a profile may be, 1000000 bytes.",
        "streamkeeper: /none.toml cannot be read: No such file or directory.",
        "/empty.toml: the profile 'empty': framing is missing",
        "/empty.toml: the profile 'empty': address is missing",
    ]


def test_the_page_explains_every_field_and_no_other() -> None:
    """docs/profiles.md has a row for each field that a profile may have."""
    text = (PROJECT / "docs" / "profiles.md").read_text()
    cells = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    rows = {cell for cell in cells if cell.isidentifier()}  # what else stands there is what a field may hold
    # The archive alone reads its columns.
    assert rows == set(Profile.__dataclass_fields__) - {"name", "marks"} | MARKS | {"columns"}
