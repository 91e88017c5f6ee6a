"""The time zone of a visitor's displayed and typed times. Pure, except for the system's table of zones."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tianzhou.console.display.series import SeriesPoint
from tianzhou.model.timestamps import is_date

COOKIE: Final = "tianzhou_zone"
"""Cookie with the zone: a name such as `Europe/Berlin` that the visitor has chosen, or `auto:` and the browser's
zone."""
AUTOMATIC: Final = "auto:"
COOKIE_S: Final = 365 * 86_400
"""Seconds for which a browser keeps the cookie."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_ZONE_FOLDER: Final = re.compile(r"/zoneinfo/(?:posix/|right/)?(.+)$")
_UTC: Final = "UTC"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


@cache
def _info(name: str) -> dt.tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return dt.UTC if name == _UTC else None


def zone_names() -> list[str]:
    """Return the names of all zones that this machine knows, sorted."""
    return sorted(available_timezones() | {_UTC})


def machine_zone(environment: str, localtime: str) -> str:
    """Return the name of a machine's zone; `UTC` when the machine does not name one.

    Args:
        environment: value of the environment variable `TZ`; empty when it is not set.
        localtime: path that the link `/etc/localtime` points to; empty when it is no link.
    """
    found = _ZONE_FOLDER.search(localtime)
    for name in (environment.removeprefix(":"), found[1] if found is not None else ""):
        if _NAME.fullmatch(name) and _info(name) is not None:
            return _UTC if name in ("Etc/UTC", "Etc/UCT", "Etc/Zulu") else name
    return _UTC


@dataclass(frozen=True, slots=True)
class Zone:
    """The time zone of a visitor.

    Attributes:
        name: name of the zone, such as `Europe/Berlin`.
        is_chosen: whether the visitor has chosen the zone; the browser's zone is used otherwise.
    """

    name: str = _UTC
    is_chosen: bool = False

    @property
    def info(self) -> dt.tzinfo:
        """The rules of the zone; those of UTC when this machine does not know the zone."""
        return _info(self.name) or dt.UTC

    def date(self, timestamp_ms: int) -> dt.datetime | None:
        """Return a time in the zone, to the millisecond; None outside of the years 1 to 9999."""
        return (_EPOCH + timestamp_ms * _MILLISECOND).astimezone(self.info) if is_date(timestamp_ms) else None

    def text(self, timestamp_ms: int) -> str:
        """Return a time as text, to the second; empty for 0 or less, its number when it is no date."""
        if timestamp_ms <= 0:
            return ""
        at = self.date(timestamp_ms)
        return f"{timestamp_ms} ms" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")

    def exact_text(self, timestamp_ms: int) -> str:
        """Return a time as `text` does, to the millisecond."""
        shown = self.text(timestamp_ms)
        return f"{shown}.{timestamp_ms % 1000:03d}" if timestamp_ms > 0 and is_date(timestamp_ms) else shown

    def text_of_iso(self, text: str) -> str:
        """Return a time that is written in ISO 8601 with an offset as text in the zone; any other text as it is."""
        try:
            at = dt.datetime.fromisoformat(text)
            if at.tzinfo is None:
                return text
            return self.exact_text((at - _EPOCH) // _MILLISECOND) or text
        except (ValueError, OverflowError):
            return text

    def offset_text(self, timestamp_ms: int) -> str:
        """Return the zone's offset at a time, such as `UTC+01:00`; `UTC` for none."""
        at = self.date(timestamp_ms)
        minutes = int(((at.utcoffset() if at is not None else None) or dt.timedelta()).total_seconds() // 60)
        hours, rest = divmod(abs(minutes), 60)
        return f"UTC{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}" if minutes else _UTC

    def input_ms(self, text: str, otherwise: int) -> int:
        """Return the time of a form's or address' text, in milliseconds since 1970.

        Args:
            text: milliseconds since 1970 as digits, or ISO 8601. ISO 8601 without an offset is in this zone.
            otherwise: result for an empty text.

        Raises:
            ValueError: the text is no time.
        """
        text = text.strip()
        if not text:
            return otherwise
        if text.isascii() and text.isdecimal() and len(text) <= 18:
            return int(text)
        try:
            at = dt.datetime.fromisoformat(text)
            return ((at if at.tzinfo is not None else at.replace(tzinfo=self.info)) - _EPOCH) // _MILLISECOND
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text[:40]!r} is no time; write it as 2026-01-31T12:00") from None

    def form_text(self, text: str) -> str:
        """Return a time in an address as the text of a form's field, to the millisecond; empty when it is no time."""
        try:
            at = self.date(self.input_ms(text, -1))
        except ValueError:
            return ""
        if at is None or at < _EPOCH:
            return ""
        return at.replace(tzinfo=None).isoformat(timespec="milliseconds")

    def address_text(self, text: str, before: str = "") -> str:
        """Return the value of a form's field for an address: milliseconds, which are independent of the zone.

        Args:
            text: value of the field; a text that is no time is returned unchanged, and the page then reports it.
            before: the previous value in the address. It is returned when the field still shows it, because a field
                cannot distinguish the two instances of an hour when clocks are set back.
        """
        if before and text == self.form_text(before):
            return before
        try:
            at_ms = self.input_ms(text, -1)
        except ValueError:
            return text
        return str(at_ms) if at_ms >= 0 else ""

    def clock_points(self, points: Sequence[SeriesPoint]) -> list[tuple[int, float | None]]:
        """Return points of a chart with a UTC axis, moved so that the axis shows the zone's clock.

        Args:
            points: the points, the oldest first.
        """
        moved = []
        for point in points:
            at = self.date(point.at_ms)
            offset = (at.utcoffset() if at is not None else None) or dt.timedelta()
            moved.append((point.at_ms + offset // _MILLISECOND, point.value))
        return moved


UTC_ZONE: Final = Zone()
"""The zone of times without a visitor."""


def choose(cookie: str | None, machine: str) -> Zone:
    """Return the zone of a visitor.

    Args:
        cookie: value of `COOKIE`; None without one.
        machine: name of the console's zone, which is used until the browser has named its own.
    """
    value = unquote(cookie or "").strip('"')
    name = value.removeprefix(AUTOMATIC)
    if len(name) <= 64 and _NAME.fullmatch(name) and _info(name) is not None:
        return Zone(name, is_chosen=not value.startswith(AUTOMATIC))
    return Zone(machine)


def cookie_value(name: str) -> str:
    """Return the cookie's value for a chosen zone; empty when the zone does not exist."""
    return quote(name, safe="") if _NAME.fullmatch(name) and _info(name) is not None else ""


def script(zone: Zone) -> str:
    """Return the script that stores the browser's zone in the cookie, and reloads a page that uses another zone.

    A zone that the visitor has chosen stays.

    Args:
        zone: zone in which the page is shown.
    """
    if zone.is_chosen:
        return ""
    return f"""<script>
(() => {{
  const shown = {json.dumps(zone.name)}, zone = Intl.DateTimeFormat().resolvedOptions().timeZone || shown;
  if (zone === shown) return;
  document.cookie = '{COOKIE}={quote(AUTOMATIC, safe="")}' + encodeURIComponent(zone)
    + '; path=/; max-age={COOKIE_S}; samesite=strict';
  const months = [...Array(24).keys()].map(month => new Date(Date.UTC(2026, month, 15)));
  const hours = name => months.map(at => new Intl.DateTimeFormat('en', {{
    timeZone: name, day: 'numeric', hour: 'numeric', minute: 'numeric',
  }}).format(at)).join();
  if (hours(zone) === hours(shown) || sessionStorage.getItem('{COOKIE}') === zone) return;
  sessionStorage.setItem('{COOKIE}', zone);
  location.reload();
}})();
</script>"""
