"""Gives the components of an instant in JavaScript's calendar: component(0, "F") is 4, a Thursday.

Instants are milliseconds since 1970; all components of NaN, which is no instant, are NaN. JavaScript's Date.UTC, which
finds where weeks begin, reads a year of two digits as one of the twentieth century.
"""

import math
from datetime import date

MS_OF_DAY = 86_400_000
_WEEK = 7 * MS_OF_DAY
FARTHEST_MS = 8.64e15
"""The bounds of JavaScript's dates."""
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats itself after so many days; `date` only knows the years up to 9999."""
_EPOCH = date(_CYCLE_YEARS + 1970, 1, 1).toordinal()


def day_number(year: int, month: int) -> int:
    """Return the days from 1970-01-01 to the first of a month. Months count from 0; any number is allowed."""
    cycles, year = divmod(year + month // 12, _CYCLE_YEARS)
    return date(_CYCLE_YEARS + year, month % 12 + 1, 1).toordinal() + cycles * _CYCLE_DAYS - _EPOCH


def utc(year: float, month: float, day: float, *times: float) -> float:
    """Return JavaScript's Date.UTC: of a year, a month from 0, a day, and hours, minutes, seconds, milliseconds."""
    numbers = (year, month, day, *times)
    if not all(math.isfinite(number) for number in numbers):
        return math.nan
    whole = [int(number) for number in numbers]
    first = day_number(whole[0] + 1900 if 0 <= whole[0] <= 99 else whole[0], whole[1])
    sizes = (3_600_000, 60_000, 1000, 1)
    millis = (first + whole[2] - 1) * MS_OF_DAY
    millis += sum(time * size for time, size in zip(whole[3:], sizes, strict=False))
    return millis if abs(millis) <= FARTHEST_MS else math.nan


def date_of(millis: float) -> tuple[int, int, int]:
    """Return the year, the month from 0 and the day of an instant."""
    cycles, days = divmod(int(millis // MS_OF_DAY) + _EPOCH, _CYCLE_DAYS)
    day = date.fromordinal(_CYCLE_DAYS + days)
    return day.year + (cycles - 2) * _CYCLE_YEARS, day.month - 1, day.day


def component(millis: float, sign: str) -> float:
    """Return a component of an instant by its letter in a picture (XPath 3.1, 9.8.4), X and x for a week's own year
    and month."""
    if math.isnan(millis):
        return math.nan
    time = int(millis % MS_OF_DAY)
    if sign in "Hhmsf":
        hour = time // 3_600_000
        return {"H": hour, "h": hour % 12 or 12, "m": time // 60_000 % 60, "s": time // 1000 % 60, "f": time % 1000}[
            sign
        ]
    year, month, day = date_of(millis)
    if sign in "YMD":
        return {"Y": year, "M": month + 1, "D": day}[sign]
    if sign == "F":
        return (int(millis // MS_OF_DAY) + 3) % 7 + 1
    if sign == "d":
        return (utc(year, month, day) - utc(year, 0, 1)) // MS_OF_DAY + 1
    return _of_weeks(millis, sign, year, month, day)


def _of_weeks(millis: float, sign: str, year: int, month: int, day: int) -> float:
    """Return the week of the year or month, and the year or month to which it belongs."""
    by_year = sign in "WX"
    parts = [(year + step, 0) if by_year else _moved(year, month, step) for step in (-1, 0, 1)]
    starts = [_first_week(*part) for part in parts]
    if sign in "Xx":
        belongs = parts[0 if millis < starts[1] else 2 if millis >= starts[2] else 1]
        return belongs[0] if by_year else belongs[1] + 1
    today = utc(year, month, day)
    week = (today - starts[1]) // _WEEK + 1
    if week > (52 if by_year else 4) and today >= starts[2]:
        return 1
    return week if (today - starts[1]) / _WEEK + 1 >= 1 else (today - starts[0]) // _WEEK + 1


def _moved(year: int, month: int, step: int) -> tuple[int, int]:
    return year + (month + step) // 12, (month + step) % 12


def _first_week(year: int, month: int) -> float:
    """Return when the week with the month's first Thursday begins; months count from 0."""
    first = utc(year, month, 1)
    weekday = (first // MS_OF_DAY + 3) % 7
    return first + (7 - weekday if weekday > 3 else -weekday) * MS_OF_DAY
