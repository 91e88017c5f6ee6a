"""The zone of a visitor's times: its choice, texts, forms, charts, the audit log and SQL."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("nicegui", reason="the console's packages are not installed")

import httpx

from tianzhou.console.display import zones
from tianzhou.console.display.series import SeriesPoint
from tianzhou.console.display.zones import Zone
from tianzhou.console.forms import offsets
from tianzhou.console.layout import View, chart_options
from tianzhou.console.pages import group, topic
from tianzhou.console.server import ConsoleServer
from tianzhou.console.settings import ConsoleSettings
from tianzhou.testing import run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)
BERLIN, KOLKATA = Zone("Europe/Berlin"), Zone("Asia/Kolkata")
NOON_MS = 1_767_873_600_000
"""8 January 2026, 12:00 UTC."""


@pytest.mark.parametrize(
    ("cookie", "expected"),
    [
        (None, Zone("Asia/Tokyo")), ("", Zone("Asia/Tokyo")),
        ("Europe%2FBerlin", Zone("Europe/Berlin", is_chosen=True)),
        ("auto%3AEurope%2FBerlin", Zone("Europe/Berlin")), ('"Europe/Berlin"', Zone("Europe/Berlin", is_chosen=True)),
        ("Mars%2FOlympus", Zone("Asia/Tokyo")), ("..%2F..%2Fetc%2Fpasswd", Zone("Asia/Tokyo")),
        ("UTC", Zone("UTC", is_chosen=True)), ("x" * 5_000, Zone("Asia/Tokyo")),
    ],
)  # fmt: skip
def test_the_zone_of_a_visitor(cookie: str | None, expected: Zone) -> None:
    assert zones.choose(cookie, "Asia/Tokyo") == expected


@pytest.mark.parametrize(
    ("environment", "localtime", "name"),
    [
        ("", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"), ("", "/usr/share/zoneinfo/Etc/UTC", "UTC"),
        (":Asia/Kolkata", "/usr/share/zoneinfo/Europe/Berlin", "Asia/Kolkata"), ("", "/etc/localtime", "UTC"),
        ("CET-1CEST", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
    ],
)  # fmt: skip
def test_the_zone_of_a_machine(environment: str, localtime: str, name: str) -> None:
    assert zones.machine_zone(environment, localtime) == name


def test_times_are_shown_in_the_zone() -> None:
    assert (Zone().text(NOON_MS), BERLIN.text(NOON_MS)) == ("2026-01-08 12:00:00", "2026-01-08 13:00:00")
    assert KOLKATA.exact_text(NOON_MS + 7) == "2026-01-08 17:30:00.007"
    assert (BERLIN.text(0), BERLIN.text(10**18)) == ("", f"{10**18} ms")
    assert [one.offset_text(NOON_MS) for one in (Zone(), BERLIN, KOLKATA, Zone("America/St_Johns"))] == [
        "UTC", "UTC+01:00", "UTC+05:30", "UTC-03:30",
    ]  # fmt: skip
    assert BERLIN.text_of_iso("2026-01-08T07:00:00.250-05:00") == "2026-01-08 13:00:00.250"
    assert [BERLIN.text_of_iso(text) for text in ("", "yesterday", "2026-01-08T07:00")] == [
        "", "yesterday", "2026-01-08T07:00",
    ]  # fmt: skip


def test_typed_times_are_times_of_the_zone() -> None:
    assert BERLIN.input_ms("2026-01-08T13:00", 0) == NOON_MS
    assert BERLIN.input_ms("2026-07-08T14:00", 0) == Zone().input_ms("2026-07-08T12:00", 0), "summer"
    assert BERLIN.input_ms("2026-01-08T12:00+00:00", 0) == NOON_MS
    assert [BERLIN.input_ms(text, 5) for text in ("", " 1234 ")] == [5, 1234]
    assert offsets.destination("time", "2026-01-08T13:00", BERLIN) == {"to_time_ms": NOON_MS}


@pytest.mark.parametrize("text", ["yesterday", "-1", "²", "9" * 30, "2026-13-01", "0001-01-01T00:00"])
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    if text != "0001-01-01T00:00":
        with pytest.raises(ValueError, match="is no time"):
            BERLIN.input_ms(text, 0)
    assert BERLIN.form_text(text) == ""


@given(st.integers(0, 4_000_000_000_000), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"]))
def test_a_time_survives_its_form(at_ms: int, name: str) -> None:
    zone = Zone(name)
    shown = zone.form_text(str(at_ms))
    assert zone.address_text(shown, str(at_ms)) == str(at_ms), "an unchanged field means the same time"
    # An hour that exists twice, when clocks are set back, may be parsed as either one.
    assert abs(int(zone.address_text(shown)) - at_ms) in (0, 3_600_000)


def test_an_address_means_one_time_in_every_zone() -> None:
    address = BERLIN.address_text("2026-01-08T13:00")
    assert address == str(NOON_MS)
    assert KOLKATA.form_text(address) == "2026-01-08T17:30:00.000"
    assert BERLIN.address_text("tomorrow") == "tomorrow", "the page then names what is no time"


def test_the_axis_of_a_chart_shows_the_zone() -> None:
    options = chart_options("", {"in": [SeriesPoint(NOON_MS, 1.0), SeriesPoint(NOON_MS + 1_000, None)]}, BERLIN)
    assert options["useUTC"]
    assert options["series"][0]["data"] == [[NOON_MS + 3_600_000, 1.0], [NOON_MS + 3_601_000, None]]


def test_rows_of_pages_show_the_zone() -> None:
    view: Any = View(None, None, "", "en", zone=BERLIN)  # type: ignore[arg-type]
    assert view.time(NOON_MS) == "2026-01-08 13:00:00"
    for rows in (group.lag_rows, topic.queue_rows):
        assert "when" in rows.__code__.co_varnames


def test_the_script_leaves_a_chosen_zone_alone() -> None:
    assert zones.script(Zone("Europe/Berlin", is_chosen=True)) == ""
    assert '"Europe/Berlin"' in zones.script(BERLIN)


async def test_the_choice_is_kept_in_a_cookie_and_comes_back_to_the_page(tmp_path: Path) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600)
    async with ConsoleServer(settings) as console, httpx.AsyncClient(timeout=60, trust_env=False) as visitor:
        to = "/audit?filter=orders#status"
        answer = await visitor.get(f"{console.url}/zone", params={"name": "Asia/Kolkata", "to": to})
        assert (answer.status_code, answer.headers["location"]) == (303, to)
        page = (await visitor.get(f"{console.url}/audit")).text
        assert "Asia/Kolkata UTC+05:30" in page
        refused = await visitor.get(f"{console.url}/zone", params={"name": "../x", "to": "//elsewhere.example"})
        assert refused.headers["location"] == "/"
        assert "Asia/Kolkata" not in (await visitor.get(f"{console.url}/audit")).text
        language = await visitor.get(f"{console.url}/language/zh", params={"to": to})
        assert language.headers["location"] == to
        login = (await visitor.get(f"{console.url}/login", params={"to": "/topics?filter=a"})).text
        back = quote("/login?to=" + quote("/topics?filter=a", safe=""), safe="")
        assert f"/language/en?to={back}" in login


def test_dates_of_a_zone_have_its_offset() -> None:
    at = KOLKATA.date(NOON_MS)
    assert at is not None
    assert at.utcoffset() == dt.timedelta(hours=5, minutes=30)
    assert Zone("UTC").date(10**18) is None
    assert "Europe/Berlin" in zones.zone_names()
