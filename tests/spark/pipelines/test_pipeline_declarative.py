"""The declarative pipeline of the documentation, run by Spark's own `spark-pipelines`."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from quick_start import QUERY_LIMIT_S

import tianzhou
from spark_probe import prepare_processes

pytest.importorskip("grpc", reason="pip install 'tianzhou[pipelines]'")
pytest.importorskip("yaml")
registry = pytest.importorskip("pyspark.pipelines.graph_element_registry")
WAREHOUSE = "spark-warehouse"
"""Folder in which `spark-pipelines` of 4.3 creates tables, below its working directory; `spark.sql.warehouse.dir` is
set too late.
"""
EXAMPLE = Path(tianzhou.__file__).parent / "pipelines" / "declarative"
SOURCE = str(Path(tianzhou.__file__).resolve().parents[1])


PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "pipelines" / "declarative.md"


def commands() -> list[list[str]]:
    """Return the commands of the page."""
    found = re.findall(r"^\$ (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(command) for command in found]


@pytest.fixture
def copied(monkeypatch, capsys, tmp_path):
    """Run `tianzhou ARGS…` in the test's folder; return exit code and stderr."""
    from tianzhou.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["tianzhou", *args])
        with pytest.raises(SystemExit) as ended:
            main.main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def run(folder: Path, command: list[str]) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    prepare_processes(environ)
    environ |= {"PYTHONPATH": SOURCE, "SPARK_LOCAL_IP": "127.0.0.1"}
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    done = subprocess.run(
        [
            str(Path(sysconfig.get_path("scripts")) / command[0]), *command[1:],
            "--conf", "spark.driver.memory=768m",
            "--conf", "spark.ui.enabled=false",
            "--conf", f"spark.driver.extraJavaOptions={java}",
        ],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


class Definitions(registry.GraphElementRegistry):
    """The elements that a folder of definitions defines."""

    def __init__(self) -> None:
        self.outputs: dict[str, str] = {}
        self.functions = {}

    def register_output(self, output):
        self.outputs[output.name] = type(output).__name__

    def register_flow(self, flow):
        self.functions[flow.target] = flow.func

    def register_auto_cdc_flow(self, flow):
        raise AssertionError(flow)

    def register_sql(self, sql_text, file_path):
        raise AssertionError(file_path)


def test_the_definitions_of_the_documentation(spark, server, topic, tmp_path):
    """Checks the arguments of `spark-pipelines`, and the contents of the tables."""
    server.send(topic, range(30), tags=lambda n: "even" if n % 2 == 0 else "odd")
    definitions = Definitions()
    spark.conf.set("tianzhou.namesrvAddr", server.address)
    spark.conf.set("tianzhou.topic", topic)
    with registry.graph_element_registration_context(definitions):
        runpy.run_path(str(EXAMPLE / "transformations" / "orders.py"))
    assert definitions.outputs == {"messages": "StreamingTable", "by_tag": "MaterializedView"}

    messages = definitions.functions["messages"]()
    assert messages.isStreaming
    query = messages.writeStream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    assert query.format("parquet").start(str(tmp_path / "messages")).awaitTermination(QUERY_LIMIT_S)
    spark.read.parquet(str(tmp_path / "messages")).createOrReplaceTempView("messages")
    try:
        found = {row["tags"]: row["messages"] for row in definitions.functions["by_tag"]().collect()}
    finally:
        spark.catalog.dropTempView("messages")
    assert found == {"even": 15, "odd": 15}


def test_the_folder_is_copied(copied, tmp_path):
    (_, *copy), _, *runs = commands()
    assert copied(*copy)[0] == 0
    folder = tmp_path / copy[-1]
    text = (folder / "spark-pipeline.yml").read_text()
    assert f"storage: {(folder / 'storage').as_uri()} " in text
    original = (EXAMPLE / "spark-pipeline.yml").read_text()
    assert re.sub(r"storage: \S+", "", text) == re.sub(r"storage: \S+", "", original)
    definitions = Path("transformations") / "orders.py"
    assert (folder / definitions).read_text() == (EXAMPLE / definitions).read_text()
    code, err = copied(*copy)
    assert (code, f"--to {copy[-1]}: is there already; name another place" in err) == (2, True)
    assert len(runs) == 1


def test_a_file_is_written_where_it_is_wanted(copied, tmp_path):
    to = tmp_path / "mine.py"
    assert copied("pipeline", "source", "archive", "--to", str(to))[0] == 0
    assert "def archive(" in to.read_text()
    code, err = copied("pipeline", "source", "declarative")
    assert (code, "declarative is a folder; say where to copy it" in err) == (2, True)


@pytest.mark.slow
def test_a_topic_is_a_streaming_table_and_a_second_run_goes_on(spark, server, topic, copied, tmp_path):
    (_, *copy), _, as_printed = commands()
    assert copied(*copy)[0] == 0
    folder = tmp_path / copy[-1]
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text()
    for old, new in (("127.0.0.1:9876", server.address), ("tianzhou.topic: orders", f"tianzhou.topic: {topic}")):
        assert old in text
        text = text.replace(old, new)
    spec.write_text(text)

    server.send(topic, range(30), tags=lambda n: "even" if n % 2 == 0 else "odd")
    run(folder, as_printed)
    server.send(topic, range(30, 40), tags="late")
    run(folder, as_printed)
    messages = spark.read.parquet(str(folder / WAREHOUSE / "messages"))
    assert sorted(int(row["text"]) for row in messages.select("text").collect()) == list(range(40))
    by_tag = spark.read.parquet(str(folder / WAREHOUSE / "by_tag"))
    assert {row["tags"]: row["messages"] for row in by_tag.collect()} == {"even": 15, "odd": 15, "late": 10}
