"""`streamkeeper profile check`, and the page that explains the fields."""

from pathlib import Path

import pytest

from handlers.profile.behaviour import Profile
from local.cli import main
from tests import shipped
from tests.local.support import PROJECT

ADDRESS = b'framing = "sse"\naddress = "%s"\n'
SOUND = ADDRESS % b"https://example.org/"
CALLED = "must be called NAME.toml, where NAME is 1 to 64 of the characters A-Z a-z 0-9 . _ -"
MARKS = {"heartbeat", "end", "loss", "disconnect"}


def test_the_profiles_that_ship_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever variables are set here."""
    files = [str(path) for path in shipped.files()]
    assert (main(["profile", "check", *files]), capsys.readouterr().err) == (0, "")


def test_every_problem_of_every_file_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, with the file, the field and what would be right; the status is 1."""
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('framing = "csv"\nmore = 1\naddress = "${UPSTREAM_X}/a"\n')
    two.write_text("framing =\n")
    assert main(["profile", "check", str(one), str(two)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{one}: the profile 'one': framing must be one of sse, ndjson, json-seq, length, raw",
        f"{one}: the profile 'one': more is not a field of a profile; docs/profiles.md lists those there are",
        f"{two}: is not valid TOML: Invalid value (at line 1, column 10)",
    ]


def test_a_missing_file_is_the_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and one sentence."""
    assert main(["profile", "check", str(tmp_path / "none.toml")]) == 2
    assert capsys.readouterr().err.endswith("none.toml cannot be read: No such file or directory.\n")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("empty", b"", "the profile 'empty': framing is missing"),
        ("a b", SOUND, CALLED),
        ("x:y", SOUND, CALLED),
        ("nested", b"a = " + b"[" * 5000, "is not valid TOML: "),
        ("meta", ADDRESS % b"http://169.254.169.254/latest", "address leads to a link-local address, which is never"),
        (
            "decimal",
            ADDRESS % b"http://2852039166/",
            "address leads to a link-local address, which is never connected to",
        ),
        ("hex", ADDRESS % b"https://0xa9.0xfe.0xa9.0xfe./", "address leads to a link-local address"),
        ("octal", ADDRESS % b"http://0251.0376.0251.0376/", "address leads to a link-local address"),
        ("mapped", ADDRESS % b"http://[::ffff:a9fe:a9fe]/", "address leads to a link-local address"),
        ("nat64", ADDRESS % b"http://[64:ff9b::a9fe:a9fe]/", "address leads to a link-local address"),
        (
            "private",
            ADDRESS % b"http://10.0.0.1/",
            "address leads to a private address, which the profile does not allow",
        ),
        ("secret", SOUND + b'headers = { Authorization = "Bearer k3y" }\n', "holds 'Authorization' in plain text"),
    ],
)
def test_a_bad_file_gets_a_sentence(
    tmp_path: Path, name: str, text: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on standard error, exit status 1, and no secret in it."""
    path = tmp_path / f"{name}.toml"
    path.write_bytes(text)
    assert main(["profile", "check", str(path)]) == 1
    printed = capsys.readouterr()
    first = printed.err.splitlines()[0]
    assert (printed.out, first.startswith(f"{path}: "), sentence in first, "k3y" in printed.err) == (
        "",
        True,
        True,
        False,
    )


def test_an_unreadable_file_is_named_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, bytes, a file that never ends and one that is not there: a sentence each, and exit status 2."""
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
    rows = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert rows == set(Profile.__dataclass_fields__) - {"name", "marks"} | MARKS
