"""Texts of the console in English and Chinese: one key per text, with both languages side by side."""

from __future__ import annotations

from typing import Final

from tianzhou.console.texts import (
    access,
    changes,
    cluster,
    doctor,
    forms,
    frame,
    groups,
    messages,
    overview,
    proof,
    sql,
    topics,
)

LANGUAGES: Final = ("en", "zh")
COOKIE: Final = "tianzhou_language"
OR: Final = " ¦ "
"""Separator of the two forms of an English text: for a `count` of 1, and for all other counts."""
TEXTS: Final[dict[str, tuple[str, str]]] = {}
for _words in (frame, overview, topics, groups, messages, sql, cluster, access, doctor, proof, changes, forms):
    if _twice := TEXTS.keys() & _words.TEXTS.keys():
        raise ValueError(f"{_words.__name__}: {', '.join(sorted(_twice))} stand elsewhere, too")
    TEXTS.update(_words.TEXTS)


def text(language: str, key: str, **values: object) -> str:
    """Return a text in a language, with its placeholders filled.

    Args:
        language: one of `LANGUAGES`; English for any other value.
        key: key in `TEXTS`.
        values: values of the placeholders.

    Raises:
        KeyError: the text does not exist, or a placeholder has no value.
    """
    english, chinese = TEXTS[key]
    found = chinese if language == "zh" else english
    if OR in found:
        one, other = found.split(OR)
        found = one if str(values.get("count")) == "1" else other
    return found.format(**values) if values else found


def english(key: str, **values: object) -> str:
    """Return a text in English, for the audit log; see `text`."""
    return text("en", key, **values)


def choose(cookie: str | None, accepted: str) -> str:
    """Return the language of a visitor: the chosen one, otherwise the browser's preference.

    Args:
        cookie: value of `COOKIE`.
        accepted: the header Accept-Language.
    """
    if cookie in LANGUAGES:
        return str(cookie)
    first = accepted.split(",", 1)[0].strip().lower()
    return "zh" if first.startswith("zh") else "en"
