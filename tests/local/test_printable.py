"""Any text can be printed on any terminal, and none controls it."""

import io
import os
import re
import subprocess
import sys
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.cli import main
from local.service.live_view import Screen
from local.terminal import align_table, join_items, print_line, printable, printable_lines, report_if_slow, truncate
from tests.local.support import PROJECT, until

ANY_TEXT = st.text(st.characters(exclude_categories=[])) | st.text("\x00\x07\x1b[2J\r\n\x9b\u202e\u2028\ud800\udc00ab")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("demo: events of 3 s are lost – é 𝄞", "demo: events of 3 s are lost – é 𝄞"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\r\nb\0", "a\\r\\nb\\x00"),
        ("\u202egnp\u2066", "\\u202egnp\\u2066"),
        ("\ud800", "\\ud800"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    """Controls, direction marks, and halves of surrogate pairs are escaped; everything else stays."""
    assert printable(text) == shown
    assert printable_lines(f"{text}\n") == f"{shown}\n".replace("\\n", "\n")


@given(ANY_TEXT)
def test_a_screen_prints_any_text_in_any_encoding(text: str) -> None:
    """A screen prints any text as one line and raises nothing, whether or not the encoding has the characters."""
    for encoding in ("ascii", "latin-1", "utf-8", "utf-16"):
        written = io.BytesIO()
        stdout: TextIO = io.TextIOWrapper(written, encoding, newline="")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            Screen().say(text)
        shown = written.getvalue().decode(encoding)
        assert shown.count("\n") == 1
        assert not set(shown.rstrip("\n")) & {*map(chr, range(32)), "\x7f", "\x9b", "\u202e"}
        stdout.close()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["replay", "no-\u202e\x1b[2J-é.yml"], 2, "streamkeeper: "),
        (["replay", "tests/timelines/handover.yml"], 0, "= connected"),
    ],
    ids=["mistake", "picture"],
)
def test_the_command_prints_to_a_terminal_without_unicode(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, words: str
) -> None:
    """A mistake that quotes anything is one line with exit status 2; a picture has ASCII marks."""
    monkeypatch.chdir(PROJECT)
    written = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(written, "ascii", write_through=True))
    assert main(arguments) == status
    said = written.getvalue().decode("ascii")
    assert (words in said, "\x1b" in said, "Traceback" in said) == (True, False, False)
    monkeypatch.undo()


def test_a_narrow_terminal_cuts_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is too long is wrapped at spaces."""
    facts = "21.2 events/s · 125 stored · 6 duplicates turned away · overlap 0.1 s · gap 0.0 s"
    monkeypatch.setenv("COLUMNS", "40")
    lines = [line.plain for line in Screen().wrap_lines(facts)]
    assert (max(map(len, lines)) <= 40, " ".join(lines)) == (True, facts)
    monkeypatch.setenv("COLUMNS", "120")
    assert [line.plain for line in Screen().wrap_lines(facts)] == [facts]


def test_counts_are_one_line_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the counts take several lines, and a number stays with its name."""
    monkeypatch.setenv("COLUMNS", "80")
    counts = [f"count-{number} {number}" for number in range(1_000, 1_020)]
    assert join_items(io.StringIO(), counts) == " ".join(counts)
    lines = join_items(Terminal(), counts).splitlines()
    assert [len(line) <= 80 for line in lines] == [True] * 4
    assert re.findall(r"count-\d+ \d+", "\n".join(lines)) == counts


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


def test_a_closed_pipe_does_not_end_the_service() -> None:
    """`make run | head`: the service continues without the display, and says so once on standard error."""
    code = "\n".join([
        "import os, sys",
        "from local.service.live_view import Screen",
        "screen = Screen()",
        "screen.say('one'), screen.print_lines('two')",
        "print('goes on', file=sys.stderr, flush=True)",
        "os._exit(0)",
    ])  # fmt: skip
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    failed, goes_on = ran.stderr.splitlines()
    assert failed.startswith("streamkeeper: the display failed, and the service continues without it: BrokenPipe")
    assert (goes_on, ran.returncode) == ("goes on", 0)


def test_a_table_keeps_its_rows_whole() -> None:
    """Columns stand side by side if they fit; otherwise names stand above, or another table follows below."""
    rows = [["strategy", "gap s", "lost"], ["retry", "4", "15"]]
    assert align_table(rows, 21) == ["strategy  gap s  lost", "retry         4    15"]
    assert align_table(rows, 11) == ["  gap", "    s  lost", "retry", "    4    15"]
    assert align_table(rows, 10) == ["  gap", "    s lost", "retry", "    4   15"]
    parts = ["strategy  gap s", "retry         4", "", "strategy  lost", "retry       15"]
    assert align_table(rows, 9) == parts


def test_a_body_is_cut_where_the_line_ends() -> None:
    """A cut text ends with a mark, and neither exceeds the columns."""
    assert [truncate("語語 ab", 7), truncate("語語 ab", 6), truncate("語語 ab", 4), truncate("e\u0301e", 2)] == [
        "語語 ab", "語語 …", "語…", "e\u0301e"
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_long_wait_is_explained(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    """The line comes after the given time, on a terminal and in a pipe; more lines say how much time is left."""
    monkeypatch.setattr(sys, "stderr", stream)
    with report_if_slow("never", after_s=3600):
        pass
    monkeypatch.setattr("local.terminal.PROGRESS_EVERY_S", 0.001)
    with report_if_slow("waiting", lambda: 1.0, after_s=0):
        assert until(lambda: "left" in stream.getvalue(), 60)
    assert stream.getvalue().splitlines()[:2] == ["streamkeeper: waiting", "streamkeeper: 100% done, about 0 s left"]


def test_a_long_line_is_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Further lines are indented, and no word is cut; 語 takes two columns of a terminal."""
    monkeypatch.setenv("COLUMNS", "30")
    print_line("価格:円円円  円円円円  円円円円", 4)
    assert capsys.readouterr().out == "価格:円円円  円円円円\n    円円円円\n"
    print_line("running  a:stream  the upstream-says \x1b[2J no", 4)
    assert capsys.readouterr().out == "running  a:stream  the\n    upstream-says \\x1b[2J no\n"
