"""Gives the components of an instant in JavaScript's calendar, and the instant of components.

Example: component(0, "F") is 4, a Thursday. Instants are milliseconds since 1970; all components of NaN, which is no
instant, are NaN. JavaScript's Date.UTC, which finds where weeks begin, reads a year of two digits as one of the
twentieth century.
"""

import math
from datetime import date

from states_language.jsonata.library import JException

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


def utc_ms(year: float, month: float, day: float, *times: float) -> float:
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
    """Return a component of an instant by its letter (XPath 3.1, 9.8.4), X and x for a week's own year and month."""
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
        return (utc_ms(year, month, day) - utc_ms(year, 0, 1)) // MS_OF_DAY + 1
    return _week_component(millis, sign, year, month, day)


def _week_component(millis: float, sign: str, year: int, month: int, day: int) -> float:
    """Return the week of the year or month, and the year or month to which it belongs."""
    by_year = sign in "WX"
    months = [12 * year + month + step for step in (-1, 0, 1)]
    parts = [(year + step, 0) for step in (-1, 0, 1)] if by_year else [divmod(each, 12) for each in months]
    starts = [_first_week(*part) for part in parts]
    if sign in "Xx":
        belongs = parts[0 if millis < starts[1] else 2 if millis >= starts[2] else 1]
        return belongs[0] if by_year else belongs[1] + 1
    today = utc_ms(year, month, day)
    week = (today - starts[1]) // _WEEK + 1
    if week > (52 if by_year else 4) and today >= starts[2]:
        return 1
    return week if (today - starts[1]) / _WEEK + 1 >= 1 else (today - starts[0]) // _WEEK + 1


def _first_week(year: int, month: int) -> float:
    """Return when the week with the month's first Thursday begins; months count from 0."""
    first = utc_ms(year, month, 1)
    weekday = (first // MS_OF_DAY + 3) % 7
    return first + (7 - weekday if weekday > 3 else -weekday) * MS_OF_DAY


def instant_of_components(values: dict[str, float | None], now_ms: float) -> float:
    """Return the instant of components; raises JException D3136 if one is missing between others."""
    given = {sign for sign, value in values.items() if value and not math.isnan(value)}
    date, time = given & set("YXMxWwdD"), given & set("PHhmsf")
    by_day = not _has_only(date, "YMD") and _has_only(date, "Yd")
    of_weeks = "XxwF" if _has_only(date, "Xxw") else "XWF" if _has_only(date, "XW") else ""
    by_half = not _has_only(time, "Hmsf") and _has_only(time, "Phmsf")
    # In 2.0.6 a day of the year is not among the components that are filled in.
    order = ("YD" if by_day else of_weeks or "YMD") + ("Phmsf" if by_half else "Hmsf")
    filled = _fill_in_components(values, order, now_ms)
    if of_weeks:
        raise JException("D3136", -1)
    year, month, day = filled["Y"], filled.get("M") or 0, filled.get("D", math.nan)
    month = month - 1 if month > 0 else 0
    if by_day:
        begin = utc_ms(year, 0, 1) + (filled["d"] - 1) * MS_OF_DAY
        _, month, day = date_of(begin) if not math.isnan(begin) else (0, math.nan, math.nan)
    hour = filled["h"] if by_half else filled["H"]
    if by_half:
        hour = (0 if hour == 12 else hour) + (12 if filled["P"] == 1 else 0)
    millis = utc_ms(year, month, day, hour, filled["m"], filled["s"], filled["f"])
    zone = next((filled[sign] for sign in "Zz" if sign in given), 0)
    return millis - zone * 60_000


def _has_only(given: set[str], allowed: str) -> bool:
    return bool(given) and given <= set(allowed)


def _fill_in_components(values: dict[str, float | None], order: str, now_ms: float) -> dict[str, float]:
    """Return the components; those before the first given one are today's, those after the last are the least."""
    filled = {sign: value for sign, value in values.items() if value is not None}
    begun = ended = False
    for sign in order:
        if sign in filled:
            if ended:
                raise JException("D3136", -1)
            begun = True
        elif begun:
            filled[sign], ended = float(sign in "MDd"), True
        else:
            filled[sign] = math.nan if sign == "P" else component(now_ms, sign)
    return filled
