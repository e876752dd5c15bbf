"""English: what a cron expression means, and how many there are of a thing."""

from __future__ import annotations

from rota.model.cron import Cron
from rota.model.cron_fields import MACROS


def counted(number: int, noun: str) -> str:
    """`1 run`, `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def cron_in_words(cron: Cron) -> str | None:
    """What it means, or None where no words are known."""
    # Imported here: a worker never needs it.
    from cron_descriptor import Options, get_description  # type: ignore[import-untyped]

    options = Options()
    options.use_24hour_time_format = True
    options.locale_code = "en_US"
    text = cron.text.strip()
    try:
        words = str(get_description(MACROS.get(text.lower(), text), options))
    except Exception:  # a library of many small parsers: no words are better than no answer
        return None
    # It joins the two day fields by `or`; where one begins with a star, both must match.
    return words.replace(", or ", ", and ") if cron.both_days else words
