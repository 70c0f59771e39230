"""What Hypothesis has compiled for other platforms, in Python: its arithmetic of floats, for CPython as WebAssembly.

A float is read as the integer of its bits, so the next float is the next integer. Widths are 16, 32 and 64 bits.
"""

import math
import struct
from importlib.metadata import version

__version__ = version("hypothesis")
_FORMATS = {16: ("!e", "!H", 10), 32: ("!f", "!I", 23), 64: ("!d", "!Q", 52)}


def float_to_int(value: float, width: int = 64) -> int:
    """The bits of a float as an integer."""
    real, whole, _ = _FORMATS[width]
    bits: int = struct.unpack(whole, struct.pack(real, value))[0]
    return bits


def int_to_float(bits: int, width: int = 64) -> float:
    """The float that has these bits."""
    real, whole, _ = _FORMATS[width]
    value: float = struct.unpack(real, struct.pack(whole, bits))[0]
    return value


def float_of(value: float, width: int) -> float:
    """The float of that width which is nearest."""
    return float(value) if width == 64 else int_to_float(float_to_int(float(value), width), width)


def is_negative(value: float) -> bool:
    """Whether its sign is minus, zero included."""
    return math.copysign(1.0, value) < 0


def next_up(value: float, width: int = 64) -> float:
    """The smallest float of that width which is greater; 0.0 comes after -0.0, infinity and NaN after themselves."""
    if math.isnan(value) or value == math.inf:
        return value
    if value == 0.0:
        return 0.0 if is_negative(value) else int_to_float(1, width)
    bits = float_to_int(value, width)
    return int_to_float(bits + 1 if value > 0 else bits - 1, width)


def next_down(value: float, width: int = 64) -> float:
    """The greatest float of that width which is smaller."""
    return -next_up(-value, width)


def width_smallest_normals(width: int) -> float:
    """The smallest positive float of that width which is normal."""
    return int_to_float(1 << _FORMATS[width][2], width)


def next_up_normal(value: float, width: int, *, allow_subnormal: bool) -> float:
    """As `next_up`, without the subnormal floats where they are not allowed."""
    above = next_up(value, width)
    smallest = width_smallest_normals(width)
    if not allow_subnormal and 0.0 < abs(above) < smallest:
        return smallest if above > 0 else -0.0
    return above


def next_down_normal(value: float, width: int, *, allow_subnormal: bool) -> float:
    """As `next_down`, without the subnormal floats where they are not allowed."""
    return -next_up_normal(-value, width, allow_subnormal=allow_subnormal)


def count_between_floats(lowest: float, highest: float, width: int = 64) -> int:
    """How many floats of that width there are from one to the other, both and both zeros included."""

    def place(value: float) -> int:
        bits = float_to_int(abs(value), width)
        return -bits - 1 if is_negative(value) else bits

    return place(highest) - place(lowest) + 1


def cathetus(_hypotenuse: float, _side: float) -> float:
    """Not here: Hypothesis needs it for complex numbers, which no test of these rooms draws."""
    raise NotImplementedError
