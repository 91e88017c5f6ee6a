"""Bounds on pages whose browser has not opened their web socket."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.console.serving.waiting_pages import WaitingPages


def test_the_oldest_page_of_a_session_goes_when_it_has_too_many() -> None:
    pages = WaitingPages(at_most=10, at_most_each=2)
    assert [pages.add(page, "alice") for page in ("1", "2", "3", "4")] == [[], [], ["1"], ["2"]]
    assert [pages.add(page, "bob") for page in ("5", "6")] == [[], []]
    assert len(pages) == 4


def test_the_oldest_page_of_all_goes_when_there_are_too_many() -> None:
    pages = WaitingPages(at_most=3, at_most_each=2)
    assert [pages.add(str(number), f"session {number}") for number in range(5)] == [[], [], [], ["0"], ["1"]]
    assert len(pages) == 3


def test_a_page_that_opens_its_socket_waits_no_longer() -> None:
    pages = WaitingPages(at_most=10, at_most_each=2)
    for number in range(100):
        assert pages.add(str(number), "alice") == []
        pages.remove(str(number))
        pages.remove(str(number))
    assert len(pages) == 0
