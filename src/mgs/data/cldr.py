"""Sentence pairs without a file: what CLDR, the Unicode project's locale data in `babel`, says in two languages.

Each sentence is a list of two to four things of one kind (days, periods, times from now, amounts, countries, ...),
written as the people who translated CLDR have it in either language: with its words, order, plurals and punctuation.

    25.–28. Sept. 1946 und November–Dezember 1998     Sep 25 – 28, 1946 and November – December 1998
    vor 6 Monaten, in 76 Jahren oder vor 1 Minute     6 months ago, in 76 years, or 1 minute ago
    8 Lettische Lats und 4,5 Ungarische Forint        8 Latvian lati and 4.5 Hungarian forints

The things are drawn at random, so there are as many pairs as anybody wants: the first n are the same whatever the
number, and the same on every machine that has the same version of `babel`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from mgs.errors import UserError

NUM_PAIRS = 20_000
LANGUAGES = ("de", "en")
MOST_THINGS = 4
FIRST, LAST = date(1900, 1, 1).toordinal(), date(2099, 12, 31).toordinal()
SECONDS_IN_A_CENTURY = 3_155_760_000

STYLES: tuple[Literal["standard", "or"], ...] = ("standard", "or")  # of lists

Phrase = Callable[[Any], str]  # what one locale makes of a thing


@lru_cache(maxsize=4)
def cldr_pairs(
    languages: tuple[str, str] = LANGUAGES, num: int = NUM_PAIRS, seed: int = 0
) -> tuple[tuple[str, str], ...]:
    """`num` sentences, no two alike, with their translations, between any two languages in which CLDR has names for
    things of every kind.

    >>> cldr_pairs(num=3) == cldr_pairs(num=5)[:3]
    True
    """
    locales = [_locale(language) for language in languages]
    names = Names(locales)
    draw = random.Random(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < num:
        source, target = _sentence(draw, names, locales)
        pairs.setdefault(source, target)
    return tuple(pairs.items())


def _locale(language: str) -> Any:
    try:
        from babel import Locale, UnknownLocaleError
    except ImportError:
        raise UserError("the data 'cldr' are in the package `babel`: pip install babel") from None
    try:
        return Locale.parse(language)
    except (UnknownLocaleError, ValueError):
        raise UserError(f"CLDR as `babel` has it knows no language {language!r}: give others, as in 'de-en'") from None


def _sentence(draw: random.Random, names: Names, locales: list[Any]) -> tuple[str, ...]:
    from babel.lists import format_list

    kind, style = draw.choice(KINDS), draw.choice(STYLES)
    things = [kind(draw, names) for _ in range(draw.randint(2, MOST_THINGS))]
    sides = (format_list([thing(locale) for thing in things], style, locale) for locale in locales)
    return tuple(" ".join(side.split()) for side in sides)  # CLDR has spaces of several widths


class Names:
    """Codes of what all the locales have names for."""

    def __init__(self, locales: list[Any]):
        from babel.localedata import locale_identifiers
        from babel.units import format_unit

        def shared(field: str) -> list[str]:
            return sorted(set.intersection(*(set(getattr(locale, field)) for locale in locales)))

        self.territories, self.languages = shared("territories"), shared("languages")
        self.scripts, self.currencies = shared("scripts"), shared("currencies")
        # Where a locale says nothing of a unit, its code is written.
        units = shared("unit_display_names")
        self.units = [u for u in units if all(u not in format_unit(2, u, locale=locale) for locale in locales)]
        known = set(self.languages)
        self.varieties = sorted(v for v in locale_identifiers() if v.count("_") in (1, 2) and v.split("_")[0] in known)
        missing = [kind for kind, codes in vars(self).items() if not codes]
        if missing:
            pair = "-".join(map(str, locales))
            raise UserError(
                f"CLDR has no names of {', '.join(missing)} for {pair}: give other languages, as in 'de-en'"
            )


# -- kinds of things -------------------------------------------------------------------------------------------------


def _day(draw: random.Random, names: Names) -> Phrase:
    """Montag, 3. März 2025"""
    from babel.dates import format_date

    day, form = _any_day(draw), draw.choice(("full", "long"))
    return lambda locale: format_date(day, form, locale)


def _moment(draw: random.Random, names: Names) -> Phrase:
    """03.03.2025, 15:05:00"""
    from babel.dates import format_datetime

    day = _any_day(draw)
    moment = datetime(day.year, day.month, day.day, draw.randrange(24), draw.randrange(60), draw.randrange(60))
    return lambda locale: format_datetime(moment, "medium", locale=locale)


def _period(draw: random.Random, names: Names) -> Phrase:
    """Mo., 3. März – Di., 6. Mai 2025"""
    from babel.dates import format_interval

    start, skeleton = _any_day(draw), draw.choice(("yMMMd", "yMMMEd", "yMMMM"))
    end = start + timedelta(days=draw.randint(1, draw.choice((20, 300, 3000))))
    return lambda locale: format_interval(start, end, skeleton, locale=locale)


def _from_now(draw: random.Random, names: Names) -> Phrase:
    """vor 3 Wochen"""
    from babel.dates import format_timedelta

    away = timedelta(seconds=draw.choice((-1, 1)) * int(SECONDS_IN_A_CENTURY ** draw.random()))
    return lambda locale: format_timedelta(away, threshold=1, add_direction=True, locale=locale)


def _amount(draw: random.Random, names: Names) -> Phrase:
    """12,5 Kilometer pro Stunde"""
    from babel.units import format_unit

    number, unit = _number(draw), draw.choice(names.units)
    return lambda locale: format_unit(number, unit, locale=locale)


def _money(draw: random.Random, names: Names) -> Phrase:
    """3 Schweizer Franken"""
    from babel.numbers import format_currency

    number, code = _number(draw), draw.choice(names.currencies)
    return lambda locale: format_currency(
        number, code, locale=locale, format_type="name", currency_digits=False, decimal_quantization=False
    )


def _named(field: str) -> Callable[[random.Random, Names], Phrase]:
    def thing(draw: random.Random, names: Names) -> Phrase:
        """Frankreich"""
        code = draw.choice(getattr(names, field))
        return lambda locale: getattr(locale, field)[code]

    return thing


def _variety(draw: random.Random, names: Names) -> Phrase:
    """Deutsch (Österreich)"""
    from babel import Locale

    variety = Locale.parse(draw.choice(names.varieties))
    return lambda locale: variety.get_display_name(locale) or ""


def _any_day(draw: random.Random) -> date:
    return date.fromordinal(draw.randint(FIRST, LAST))


def _number(draw: random.Random) -> float:
    """Mostly small, sometimes with a fraction."""
    whole = draw.randint(1, draw.choice((9, 99, 9999)))
    return whole / 10 if draw.random() < 0.2 else whole


KINDS = (
    _day,
    _moment,
    _period,
    _from_now,
    _amount,
    _money,
    _named("territories"),
    _named("languages"),
    _named("scripts"),
    _variety,
)
