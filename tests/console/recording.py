"""Records the open page as an animated PNG, one frame a second, which browsers, GitHub and PyPI play."""

import base64
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tests.console.chromium import Chromium

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SECONDS = 20
# How many frames follow the one in which a handover is over.
AFTER = 7

# Takes a frame a second until a handover has been shown for `after` frames; returns the last `count`.
_TAKE = """const handover = () => page.locator('.handover').textContent();
    const before = await handover();
    const shots = [];
    for (let left = Infinity; left > 0; left -= 1) {
      const next = new Promise((done) => setTimeout(done, 1000));
      shots.push((await page.screenshot()).toString('base64'));
      if (shots.length > input.count && left === Infinity && await handover() !== before) left = input.after;
      await next;
    }
    return shots.slice(-input.count);"""
# Returns the part of each frame that differs from the one before as [x, y, PNG]; the first is whole.
_COMPARE = """const blank = await context.newPage();
    const parts = await blank.evaluate(async (shots) => {
      const parts = [];
      let before = null;
      for (const shot of shots) {
        const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${shot}`)).blob());
        const { width, height } = image;
        const canvas = Object.assign(document.createElement('canvas'), { width, height });
        const drawn = canvas.getContext('2d', { alpha: false });
        drawn.drawImage(image, 0, 0);
        const pixels = new Uint32Array(drawn.getImageData(0, 0, width, height).data.buffer);
        let [left, top, right, bottom] = before ? [width, height, 0, 0] : [0, 0, width, height];
        for (let at = 0; before && at < pixels.length; at += 1) {
          if (pixels[at] === before[at]) continue;
          const [x, y] = [at % width, Math.floor(at / width)];
          [left, top] = [Math.min(left, x), Math.min(top, y)];
          [right, bottom] = [Math.max(right, x + 1), Math.max(bottom, y + 1)];
        }
        before = pixels;
        // One that is as the one before has a dot.
        if (left >= right) [left, top, right, bottom] = [0, 0, 1, 1];
        const part = Object.assign(document.createElement('canvas'), { width: right - left, height: bottom - top });
        part.getContext('2d', { alpha: false }).drawImage(canvas, -left, -top);
        parts.push([left, top, part.toDataURL('image/png').split(',')[1]]);
      }
      return parts;
    }, input);
    await blank.close();
    return parts;"""


class Frame(NamedTuple):
    """A part of the picture: its place and its PNG."""

    x: int
    y: int
    png: bytes


def handover(browser: Chromium) -> bytes:
    """Returns SECONDS of the open page of a stream; the lanes hand over at its end."""
    shots = browser.do(_TAKE, {"count": SECONDS, "after": AFTER})
    return animated([Frame(x, y, base64.b64decode(png)) for x, y, png in browser.do(_COMPARE, shots)])


def animated(frames: list[Frame]) -> bytes:
    """Returns an animated PNG that shows each frame for a second, the last for three, and repeats for ever."""
    head = next(chunks(frames[0].png))[1]
    made = [SIGNATURE, chunk(b"IHDR", head), chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    number = 0
    for count, frame in enumerate(frames, 1):
        size = next(chunks(frame.png))[1]
        assert size[8:] == head[8:], "the frames differ in their kind of pixels"
        seconds = 3 if count == len(frames) else 1
        control = struct.pack(">I8sIIHHBB", number, size[:8], frame.x, frame.y, seconds, 1, 0, 0)
        made.append(chunk(b"fcTL", control))
        number += 1
        for kind, data in chunks(frame.png):
            if kind == b"IDAT" and count == 1:
                made.append(chunk(kind, data))
            elif kind == b"IDAT":
                made.append(chunk(b"fdAT", struct.pack(">I", number) + data))
                number += 1
    return b"".join([*made, chunk(b"IEND", b"")])


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the kind and the data of each chunk of a PNG."""
    at = len(SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        yield kind, png[at + 8 : at + 8 + length]
        at += 12 + length


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
