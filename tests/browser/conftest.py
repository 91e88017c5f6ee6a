"""A cluster with data, the console beside it, and a real browser: as processes, shared by the tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from console_site import Browser, Site
from processes import Tianzhou, serve

from tianzhou import sync
from tianzhou.model import Message

PASSWORD = "correct horse battery"
DESK = {"width": 1280, "height": 800}
# Chromium run by root has no sandbox, and must not connect to its vendor's hosts.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("lengthy")


class Shared:
    """Resources that the tests of this folder share on a worker: one cluster with its console, and one browser.

    They end when the worker leaves the folder, so that they do not run beside other tests: Playwright keeps an event
    loop in this thread, beside which no other loop can run.

    Attributes:
        stack: exit stack that stops the cluster, the console and the browser.
        site: the console; None before the first test that requests it.
        chromium: the browser's context; None before the first test that requests it.
    """

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.site: Site | None = None
        self.chromium: Any = None

    def close(self) -> None:
        self.site = self.chromium = None
        self.stack.close()


SHARED = Shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        SHARED.close()


@pytest.fixture(scope="module")
def chromium() -> Any:
    """Return the shared browser. It keeps the console's compiled scripts in its profile."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    # The shell without a window takes half of the processor time of the whole browser.
    program = os.environ.get("TIANZHOU_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: apt-get install chromium-headless-shell")
    if SHARED.chromium is None:
        profile = SHARED.stack.enter_context(TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True))
        running = SHARED.stack.enter_context(playwright.sync_playwright())
        SHARED.chromium = running.chromium.launch_persistent_context(
            profile, executable_path=program, args=list(FLAGS), viewport=DESK, locale="en-US"
        )
        SHARED.stack.callback(SHARED.chromium.close)
    return SHARED.chromium


@pytest.fixture(scope="module")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., AbstractContextManager[Site]]:
    """Return a function that opens a console of a cluster: its arguments are a function called with the folder before
    the start, and the commands' arguments.
    """

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
            more = ("--port", 0, "--refresh-s", 1, "-o", "json", *of_console)
            with Tianzhou(folder, "console", *more, namesrv=namesrv) as console:
                fill(namesrv)
                yield Site(console.ready()["url"], namesrv, folder, server.pid)

    return opened


@pytest.fixture(scope="module")
def site(open_site: Callable[..., AbstractContextManager[Site]]) -> Site:
    """Yield the shared cluster with a topic `orders` of ten messages and a group `billing`; tests add their own."""
    if SHARED.site is None:
        SHARED.site = SHARED.stack.enter_context(open_site())
    return SHARED.site


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
    page = chromium.new_page()
    page.set_viewport_size(DESK)
    found = Browser(page, site)
    page.set_default_timeout(30_000)
    page.on("console", lambda line: found.complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    yield found
    page.close()
    chromium.clear_cookies()
    assert found.complaints == []
