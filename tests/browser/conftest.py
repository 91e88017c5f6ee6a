"""A cluster with data, the console beside it, and a real browser: as processes, shared by the tests of a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from console_site import Browser, Site
from processes import Tianzhou, serve

from tianzhou import sync
from tianzhou.model import Message

PASSWORD = "correct horse battery"
# A root's Chromium has no sandbox, and must not look for its maker's hosts.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("lengthy")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser, ended with its file: Playwright keeps a loop in this thread, beside which no other can run."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("TIANZHOU_CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., AbstractContextManager[Site]]:
    """Opens a console of a cluster: called with what to call with the folder first, and the commands' arguments."""

    @contextmanager
    def opened(
        prepare: Callable[[Path], object] = lambda folder: None,
        of_serve: Sequence[object] = (),
        of_console: Sequence[object] = (),
    ) -> Iterator[Site]:
        pytest.importorskip("nicegui", reason="the console's packages are not installed")
        folder = tmp_path_factory.mktemp("site")
        prepare(folder)
        with serve(folder, *of_serve) as server:
            namesrv = server.ready()["namesrv"]
            fill(namesrv)
            more = ("--port", 0, "--refresh-s", 1, "-o", "json", *of_console)
            with Tianzhou(folder, "console", *more, namesrv=namesrv) as console:
                yield Site(console.ready()["url"], namesrv, folder)

    return opened


@pytest.fixture(scope="module")
def site(open_site: Callable[..., AbstractContextManager[Site]]) -> Iterator[Site]:
    """A cluster with a topic of ten messages, of which a group has consumed some."""
    with open_site() as found:
        yield found


def fill(namesrv: str) -> None:
    with sync.Admin(namesrv) as admin:
        admin.topics.create("orders", read_queue_nums=2, write_queue_nums=2)
        admin.groups.create("billing")
    with sync.Producer("shop", namesrv) as producer:
        for number in range(10):
            producer.send(Message("orders", b'{"id": %d}' % number, tags="paid", keys=f"order-{number}"))


@pytest.fixture
def browser(chromium: Any, site: Site) -> Iterator[Browser]:
    """A fresh page; a test fails when the browser has complained of anything."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en-US")
    page = context.new_page()
    found = Browser(page, site)
    page.set_default_timeout(30_000)
    page.on("console", lambda line: found.complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    yield found
    context.close()
    assert found.complaints == []
