"""README's recording is a valid animated PNG, and as long as README says."""

import struct
import zlib

from tests.console import recording
from tests.console.screenshots import DOCS, MOST_RECORDED_BYTES


def test_the_recording_is_whole() -> None:
    """Its chunks have right checksums, its frames are numbered in order, and each frame lies within the picture."""
    png = (DOCS / "handover.png").read_bytes()
    found = list(recording.chunks(png))
    assert b"".join([recording.SIGNATURE, *(recording.chunk(*each) for each in found)]) == png
    assert len(png) < MOST_RECORDED_BYTES
    of = {kind: [data for each, data in found if each == kind] for kind, _ in found}
    assert struct.unpack(">II", of[b"acTL"][0]) == (recording.SECONDS, 0)
    numbers = [int.from_bytes(data[:4]) for kind, data in found if kind in (b"fcTL", b"fdAT")]
    assert (len(of[b"fcTL"]), numbers) == (recording.SECONDS, list(range(len(numbers))))
    width, height, depth, colours = struct.unpack_from(">IIBB", of[b"IHDR"][0])
    assert (depth, colours) == (8, 6)
    for part in of[b"fcTL"]:
        wide, high, x, y = struct.unpack_from(">IIII", part, 4)
        assert (x + wide <= width, y + high <= height) == (True, True)
    assert len(zlib.decompress(b"".join(of[b"IDAT"]))) == height * (1 + 4 * width)
