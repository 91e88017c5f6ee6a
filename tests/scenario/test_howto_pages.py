"""The Python code of the pages about consuming, managing, migrating and web applications runs as printed."""

from __future__ import annotations

import importlib
import importlib.util
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tianzhou.admin import Admin
from tianzhou.testing import Cluster

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
OTHER_QUEUES = ["coming-from-other-queues.md", "coming-from-celery.md"]
WITH_USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"a-long-secret"}',
}


def examples_of(page: str) -> list[str]:
    text = (HOWTO / page).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found
    return found


@pytest.mark.parametrize("page", ["admin.md", "filters.md", "coming-from-rocketmq.md", *OTHER_QUEUES])
def test_the_examples_of_a_page_run_one_after_the_other(page: str) -> None:
    with ExitStack() as stack:
        plain = stack.enter_context(Cluster())
        for text in examples_of(page):
            cluster = stack.enter_context(Cluster(settings=WITH_USERS)) if "access_key=" in text else plain
            code = text.replace("127.0.0.1:9876", cluster.namesrv_addr)
            assert code != text
            exec(compile(code, page, "exec"), {"__name__": "__main__"})


def files_of(page: str, folder: Path) -> None:
    """Write the examples of a page that begin with their name into a folder."""
    for text in examples_of(page):
        name = re.match(r"# (\S+\.py)\n", text)
        assert name, text
        (folder / name.group(1)).write_text(text, encoding="utf-8")


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    files_of("web-frameworks.md", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.filterwarnings("ignore:Using `httpx`")  # Starlette's test client prefers its successor
@pytest.mark.parametrize(
    "name",
    [
        "test_an_order_is_billed",
        "test_what_is_no_order_is_refused_here_and_there",
        "test_when_no_broker_answers_the_caller_is_told",
    ],
)
def test_the_application_with_a_lifespan_passes_its_own_tests(
    name: str, web: Path, tianzhou_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    getattr(importlib.import_module("test_shop"), name)(tianzhou_cluster, monkeypatch)


def django_of(namesrv_addr: str) -> dict[str, ModuleType]:
    """Return the modules of Django that the page uses, because the tests do not install it: callbacks of a commit, a
    response, a command.
    """
    callbacks: list[Any] = []

    @contextmanager
    def atomic() -> Iterator[None]:
        yield
        while callbacks:
            callbacks.pop(0)()

    members: dict[str, dict[str, Any]] = {
        "django": {},
        "django.conf": {"settings": SimpleNamespace(NAMESRV_ADDR=namesrv_addr)},
        "django.core": {},
        "django.core.management": {},
        "django.core.management.base": {"BaseCommand": object},
        "django.db": {
            "transaction": SimpleNamespace(atomic=atomic, on_commit=callbacks.append),
            "close_old_connections": lambda: None,
        },
        "django.http": {"JsonResponse": lambda data, status: SimpleNamespace(data=data, status_code=status)},
    }
    modules = {name: ModuleType(name) for name in members}
    for name, values in members.items():
        vars(modules[name]).update(values)
    return modules


def test_a_view_sends_what_a_command_consumes(
    web: Path, tianzhou_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in django_of(tianzhou_cluster.namesrv_addr).items():
        monkeypatch.setitem(sys.modules, name, module)
    handlers: dict[int, Any] = {}
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    tianzhou_cluster.create_topic("orders")
    views, bill = importlib.import_module("views"), importlib.import_module("bill")
    command = threading.Thread(target=bill.Command().handle)
    command.start()
    try:
        assert views.place(SimpleNamespace(POST={"amount": "12.5"}), 7).status_code == 202
        tianzhou_cluster.wait_until(lambda: [views.Order(7, 12.5)] == bill.BILLED)
    finally:
        tianzhou_cluster.wait_until(lambda: signal.SIGTERM in handlers)
        handlers[signal.SIGTERM](signal.SIGTERM, None)
        command.join(30)
        views.producer().stop()
    assert not command.is_alive()
    tianzhou_cluster.wait_until_consumed("billing", "orders")


def faststream() -> dict[str, ModuleType]:
    """Return the modules of FastStream that the page uses, because the tests do not install it: a broker in memory and
    lifespan hooks.
    """

    class InMemoryBroker:
        def __init__(self, _url: str) -> None:
            self.subscribers: dict[str, Any] = {}

        def subscriber(self, channel: str) -> Any:
            return lambda handler: self.subscribers.setdefault(channel, handler)

        async def publish(self, value: Any, channel: str) -> None:
            await self.subscribers[channel](value)

    @asynccontextmanager
    async def in_memory(_broker: InMemoryBroker) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def living(app: SimpleNamespace) -> AsyncIterator[None]:
        for hook in (*app.on_startup, *app.after_startup):
            await hook()
        yield
        for hook in (*app.on_shutdown, *app.after_shutdown):
            await hook()

    def application(broker: InMemoryBroker, **hooks: Any) -> SimpleNamespace:
        return SimpleNamespace(broker=broker, **hooks)

    modules = {name: ModuleType(name) for name in ("faststream", "faststream.redis")}
    vars(modules["faststream"]).update(FastStream=application, TestApp=living)
    vars(modules["faststream.redis"]).update(RedisBroker=InMemoryBroker, TestRedisBroker=in_memory)
    return modules


@pytest.mark.usefixtures("web")
def test_faststream_and_the_clients_stand_side_by_side(tianzhou_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("faststream") is None:
        for name, module in faststream().items():
            monkeypatch.setitem(sys.modules, name, module)
    importlib.import_module("test_stream").test_both_ways(tianzhou_cluster, monkeypatch)


def test_the_nouns_of_the_page_are_those_of_admin() -> None:
    """Each row of the table names existing operations, and all of them unless it mentions others."""
    page = (HOWTO.parent / "reference" / "admin.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\| (.+) \|$", page, re.MULTILINE)
    admin = Admin("127.0.0.1:1")
    nouns = {name for name, one in vars(Admin).items() if isinstance(one, cached_property) and not name.startswith("_")}
    assert {noun for noun, _ in rows} == nouns
    for noun, listed in rows:
        named = set(re.findall(r"`(\w+)`", listed))
        public = {name for name in dir(type(getattr(admin, noun))) if not name.startswith("_")}
        assert named <= public, noun
        assert named == public or "and others" in listed, (noun, public - named)
