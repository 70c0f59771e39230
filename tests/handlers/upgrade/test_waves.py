"""The waves of an upgrade: which streams change together."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.upgrade.upgrade_steps import FEW, WHOLE, place, wave_end

PLACES = st.lists(st.integers(0, WHOLE - 1), max_size=400)


def waves(places: list[int]) -> list[list[int]]:
    """Return the places of each wave, in order."""
    begin, all_waves = 0, []
    while begin < WHOLE:
        end = wave_end(places, begin)
        assert end > begin
        all_waves.append([one for one in places if begin <= one < end])
        begin = end
    return all_waves


@given(PLACES)
def test_every_stream_goes_in_exactly_one_wave(places: list[int]) -> None:
    """Every stream is in exactly one wave: the waves adjoin and reach the last place."""
    assert sorted(one for wave in waves(places) for one in wave) == sorted(places)


@given(st.sets(st.integers(0, WHOLE - 1), max_size=400))
def test_no_wave_is_larger_than_all_before_it(places: set[int]) -> None:
    """The first wave has three streams or a hundredth; a later one at most as many as went before, or three."""
    gone = 0
    for wave in waves(sorted(places)):
        assert len(wave) <= max(FEW, gone if gone else len(places) // 100)
        gone += len(wave)


def test_ten_thousand_streams_go_in_eight_waves() -> None:
    """Of 10,000 streams a hundred go first, then as many as went before; a stage without streams has one wave."""
    sizes = [len(wave) for wave in waves([place(f"demo:{number}") for number in range(10_000)])]
    assert sizes == [100, 100, 200, 400, 800, 1600, 3200, 3600]
    assert waves([]) == [[]]
