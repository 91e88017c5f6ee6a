"""The pytest plugin: fixtures that are test clusters, and what they hold in the reports of failed tests.

pytest finds it by itself where the package is installed (entry point `pytest11`, name `tianzhou`); from a source tree
name it: `-p tianzhou.testing.plugin`. It needs nothing but pytest and imports the cluster only when one is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tianzhou.testing.cluster import Cluster

MARKER = "tianzhou"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(virtual=False, brokers=1, folder=None, memory=True, settings={{}}): "
        "options of the test's tianzhou_cluster, see tianzhou.testing.ClusterOptions",
    )


@pytest.fixture
def tianzhou_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test alone, with the options of its `tianzhou` markers; see `tianzhou.testing.Cluster`."""
    from tianzhou.testing.cluster import Cluster

    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError(
                f"@pytest.mark.{MARKER}{marker.args!r}: options have names, as in @pytest.mark.{MARKER}(virtual=True)"
            )
        options |= marker.kwargs
    with Cluster(**options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tianzhou_cluster_factory() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that live until the session ends: `tianzhou_cluster_factory(virtual=True)`.

    For clusters of a class or module, see `tianzhou.testing.cluster_fixture`.
    """
    from tianzhou.testing.cluster import Cluster

    with ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            return stack.enter_context(Cluster(**options))

        yield make


def cluster_fixture(scope: Any = "function", *, name: str | None = None, **options: Any) -> Any:
    """A fixture of your own; put it into a `conftest.py` or a test module.

        orders_cluster = cluster_fixture("module", virtual=True)

    Args:
        scope: as of `pytest.fixture`.
        name: its name when that is not the variable's.
        options: see `ClusterOptions`.
    """

    @pytest.fixture(scope=scope, name=name)
    def cluster() -> Iterator[Cluster]:
        from tianzhou.testing.cluster import Cluster

        with Cluster(**options) as made:
            yield made

    return cluster


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Say where the messages are when a test with a cluster fails."""
    # The old form of a wrapper, which every pytest knows: this is loaded in test runs that have nothing to do with us.
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            describe = getattr(value, "describe", None)
            if type(value).__module__ != "tianzhou.testing.cluster" or describe is None:
                continue
            try:
                text = describe()
            except Exception as error:  # noqa: BLE001 - the test's own failure is what counts
                text = f"cannot be looked at: {error}"
            report.sections.append((f"cluster {name}", text))
