"""The pytest plugin: fixtures of test clusters, and their state in the reports of failed tests.

pytest loads the plugin where the package is installed (entry point `pytest11`, name `tianzhou`). From a source tree,
pass `-p tianzhou.testing.plugin`. The plugin needs pytest only, and imports the cluster on its first use.
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
    """Register the marker."""
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
    """A factory of clusters that live until the session ends: `tianzhou_cluster_factory(virtual=True)`.

    For clusters of a class or module, see `tianzhou.testing.cluster_fixture`.
    """
    from tianzhou.testing.cluster import Cluster

    with ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            return stack.enter_context(Cluster(**options))

        yield make


def cluster_fixture(scope: Any = "function", *, name: str | None = None, **options: Any) -> Any:
    """Return a fixture with a cluster; assign it in a `conftest.py` or a test module.

        orders_cluster = cluster_fixture("module", virtual=True)

    Args:
        scope: as of `pytest.fixture`.
        name: the fixture's name, if it is not the variable's.
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
    """Add the state of the cluster to the report of a failed test."""
    # The old form of a wrapper, which every version of pytest supports: test runs without clusters load this plugin
    # too.
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            describe = getattr(value, "describe", None)
            if type(value).__module__ != "tianzhou.testing.cluster" or describe is None:
                continue
            try:
                text = describe()
            except Exception as error:  # noqa: BLE001 - the test's own failure matters more
                text = f"cannot be looked at: {error}"
            report.sections.append((f"cluster {name}", text))
