"""Content codings, at any split: flushed data comes out at once, in bounded pieces, and damage has a name."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.content_codings import BodyDecoder, Coding, Corrupt, Unfinished, UnknownCoding, coding
from tests.handlers.connection.wires import cut

MOST = 1000
PLACES = st.integers(0, 90) | st.integers(0, 9_000)
WBITS = {"gzip": 31, "zlib": 15, "raw": -15}
CODINGS: dict[str, Coding] = {"gzip": "gzip", "zlib": "deflate", "raw": "deflate"}


def flushed(parts: list[bytes], wbits: int) -> list[bytes]:
    """Return each part compressed and flushed, and the end of the stream after the last."""
    compressor = zlib.compressobj(wbits=wbits)
    sent = [compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*sent, compressor.flush()]


@pytest.mark.parametrize("wire", WBITS)
@given(parts=st.lists(st.binary(max_size=3000), min_size=1, max_size=4), cuts=st.lists(PLACES, max_size=6))
def test_decompressed_bytes_are_the_original_ones_however_they_are_cut(
    wire: str, parts: list[bytes], cuts: list[int]
) -> None:
    """gzip and both forms of deflate give the original bytes, in pieces no longer than the bound."""
    decoder = BodyDecoder(CODINGS[wire], MOST)
    pieces = [piece for data in cut(b"".join(flushed(parts, WBITS[wire])), cuts) for piece in decoder.pieces(data)]
    decoder.close()
    assert b"".join(pieces) == b"".join(parts)
    assert all(0 < len(piece) <= MOST for piece in pieces)


@pytest.mark.parametrize("wire", WBITS)
@given(parts=st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=4))
def test_each_flush_is_handed_over_at_once(wire: str, parts: list[bytes]) -> None:
    """A flushed part does not wait for further bytes, even if it is exactly as long as a piece may be."""
    decoder = BodyDecoder(CODINGS[wire], MOST)
    for part, data in zip([*parts, b"x" * MOST], flushed([*parts, b"x" * MOST], WBITS[wire]), strict=False):
        assert b"".join(decoder.pieces(data)) == part


@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=5), cuts=st.lists(PLACES, max_size=6))
def test_several_gzip_members_are_one_body(parts: list[bytes], cuts: list[int]) -> None:
    """Several gzip members in a row are one body."""
    decoder = BodyDecoder("gzip", MOST)
    data = b"".join(gzip.compress(part) for part in parts)
    assert b"".join(piece for some in cut(data, cuts) for piece in decoder.pieces(some)) == b"".join(parts)
    decoder.close()


def test_a_bomb_comes_in_pieces_that_the_caller_takes_one_by_one() -> None:
    """Each piece is made after the one before is taken, so a thousand times the size never exists at once."""
    pieces = BodyDecoder("gzip", MOST).pieces(gzip.compress(b"\n" * 10_000_000))
    assert [len(next(pieces)) for _ in range(5)] == [MOST] * 5
    assert 5 * MOST + sum(len(piece) for piece in pieces) == 10_000_000


@pytest.mark.parametrize("wire", WBITS)
def test_bytes_before_damage_come_before_the_error(wire: str) -> None:
    """Flushed parts in the same read as the damage are not lost."""
    first, second, _ = flushed([b"one\n" * 1000, b"two\n"], WBITS[wire])
    decoder = BodyDecoder(CODINGS[wire], MOST)
    pieces: list[bytes] = []
    with pytest.raises(Corrupt) as caught:
        pieces.extend(decoder.pieces(first + second + b"\xff" * 20))
    assert b"".join(pieces) == b"one\n" * 1000 + b"two\n"
    assert str(caught.value) == "the body is not compressed as its header says"


def test_bytes_after_the_compressed_data_are_no_part_of_a_body() -> None:
    """Bytes after a gzip member are another member or damage; after a deflate stream any byte is an error."""
    goes_on = "the body has bytes after its compressed data"
    no_member = "the body is not compressed as its header says"
    for wire, why in (("gzip", no_member), ("zlib", goes_on), ("raw", goes_on)):
        decoder = BodyDecoder(CODINGS[wire], MOST)
        assert b"".join(decoder.pieces(b"".join(flushed([b"one"], WBITS[wire])))) == b"one"
        with pytest.raises(Corrupt, match=why):
            list(decoder.pieces(b"<html>"))


def test_a_wrong_checksum_is_damage() -> None:
    """gzip's own checksum is verified."""
    data = bytearray(gzip.compress(b"one"))
    data[-8] ^= 1
    with pytest.raises(Corrupt):
        list(BodyDecoder("gzip", MOST).pieces(bytes(data)))


@pytest.mark.parametrize("wire", WBITS)
def test_a_body_that_ends_too_early_is_unfinished(wire: str) -> None:
    """A body is unfinished at every place before its end, except that a body without a byte is empty."""
    data = b"".join(flushed([b"one"], WBITS[wire]))
    for end in range(len(data) + 1):
        decoder = BodyDecoder(CODINGS[wire], MOST)
        list(decoder.pieces(data[:end]))
        if 0 < end < len(data):
            with pytest.raises(Unfinished):
                decoder.close()
        else:
            decoder.close()


@given(data=st.binary(max_size=200), named=st.sampled_from(["gzip", "deflate"]))
def test_no_bytes_break_the_decoder_of_a_body(data: bytes, named: Coding) -> None:
    """Any bytes are a body, damage or the beginning of a body."""
    decoder = BodyDecoder(named, MOST)
    try:
        list(decoder.pieces(data))
        decoder.close()
    except (Corrupt, Unfinished):
        pass


@pytest.mark.parametrize(
    ("header", "named"),
    [(None, ""), ("", ""), ("identity", ""), ("none", ""), ("UTF-8", ""), ("gzip", "gzip"), (" X-GZip ", "gzip"),
     ("identity, deflate", "deflate")],
)  # fmt: skip
def test_codings_are_recognized_by_their_names(header: str | None, named: Coding) -> None:
    """Names of codings are RFC 9110's, in any case; servers of graphql-sse send "none", and others a charset."""
    assert coding(header) == named


@pytest.mark.parametrize("header", ["br", "zstd", "compress", "gzip, gzip", "deflate, gzip", "gzip;q=1", "sécret"])
def test_other_codings_are_refused(header: str) -> None:
    """Codings that cannot be read, or two at once, are refused; the message repeats nothing of the header."""
    with pytest.raises(UnknownCoding) as caught:
        coding(header)
    assert str(caught.value) == "the body is compressed by a coding that was not requested"
