"""What the service prints."""

import pytest

from local.live import Screen


@pytest.mark.parametrize("text", ["demo:a: lane A is connected", "demo:100:b", "[bold]x[/bold] [/x] {'a': 1}"])
def test_a_line_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A stream id between colons is no emoji, and brackets are no markup."""
    screen = Screen()
    screen.plain(text)
    screen.say(text)
    plain, said = capsys.readouterr().out.splitlines()
    assert (plain, said[len("00:00:00 ") :]) == (text, text)
