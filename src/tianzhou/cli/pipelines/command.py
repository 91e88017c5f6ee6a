"""Common parts of the pipeline commands: options, the Spark session, and readable errors."""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tianzhou.cli.children import interruptible
from tianzhou.cli.output import Output, OutputOption, print_fields, print_json, print_names, print_text
from tianzhou.cli.progress import progress
from tianzhou.errors import ConfigError, TianzhouError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tianzhou.cli.pipelines.clusters import PipelineCluster
    from tianzhou.pipelines.queries import Rows
    from tianzhou.pipelines.topics import Topics

T = TypeVar("T")

DELIVERIES = ("at-least-once", "exactly-once")
# The last line of a traceback with an error of this package, inside Spark's error of a failed task or query.
_OURS = re.compile(r"(?:^|[\s:])tianzhou(?:\.\w+)+\.(\w+): (.+)")

app = typer.Typer(
    help="Ready pipelines over topics, to run or to copy.",
    epilog="Example: tianzhou pipeline archive orders --to archive",
    no_args_is_help=True,
)

ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark, as spark.driver.memory=4g; may be repeated."),
]
CheckpointOption = Annotated[
    str, typer.Option(help="Folder that keeps how far it is: run again with it, it goes on from there.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Go on with what is sent later, until Ctrl-C; else stop at what is there now.")
]
StoreOption = Annotated[
    str | None, typer.Option("--store", help="Read the files of this store, and ask no broker for messages.")
]
CorruptBodiesOption = Annotated[
    str,
    typer.Option(
        help="A compressed body that cannot be unpacked ends the query (fail), is null, or is left out (skip)."
    ),
]
SparkOption = Annotated[bool, typer.Option("--spark", hidden=True, help="Has no effect: Spark runs all queries.")]
DeliveryOption = Annotated[
    str | None, typer.Option(help="Of the sink: at-least-once or exactly-once; default: the sink's own.")
]


def on_spark(name: str, conf: list[str] | None, work: Callable[[SparkSession], T]) -> T:
    """Run a function with a Spark session, which is stopped afterwards.

    Args:
        name: the application's name.
        conf: settings as `key=value`.
        work: receives the session.

    Raises:
        ConfigError: a setting is malformed, or Spark's processes rejected an option.
        TianzhouError: the query failed.
        typer.Exit: the command was interrupted.
    """
    values = dict(setting_of(text) for text in conf or [])
    with interruptible() as ending:
        try:
            running = _running()
            if running is not None:  # the caller stops its own session
                return work(running)
            from tianzhou.spark import session

            spark = session(f"tianzhou-{name}", profile="local", warm=False, **values)
            ending.watch()
            # Py4J logs a Ctrl-C as an error with a stack trace, and also raises it.
            logging.getLogger().addFilter(lambda record: not str(record.msg).startswith("KeyboardInterrupt"))
            if not logging.getLogger().isEnabledFor(logging.INFO):
                # This command prints an error once, on one line. With -v Spark also logs it, with stack traces.
                spark.sparkContext.setLogLevel("FATAL")
            try:
                return work(spark)
            finally:
                if not ending.number:
                    spark.stop()
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark", "py4j")):
                raise
            raise plain(error) from error


def run_query(
    start: Callable[[Topics], StreamingQuery],
    name: str,
    conf: list[str] | None,
    cluster: PipelineCluster,
    delivery: str | None = None,
    shown: str = "read",
    each: Callable[[Any], None] = lambda _: None,
    *,
    corrupt_bodies: str | None = None,
    bar: bool = True,
) -> Rows:
    """Run a streaming query to its end, with a progress bar of the rows it reads.

    Args:
        start: starts the query.
        name: the application's name.
        conf: settings of Spark as `key=value`.
        cluster: the cluster of the topics.
        delivery: the sink's option `delivery`; None for its default.
        shown: description of the rows in the progress bar.
        each: called with the progress of each micro-batch.
        corrupt_bodies: the source's option `corruptBodies`; None for its default.
        bar: whether to show a progress bar. False if the caller shows one.

    Raises:
        ConfigError, TianzhouError, typer.Exit: see `on_spark`.
    """

    def work(spark: SparkSession) -> Rows:
        from tianzhou.pipelines.queries import Rows, run

        with progress(shown, None, worth_it=bar) as advance:
            rows = Rows(advance)

            def count(batch: Any) -> None:
                rows(batch)
                each(batch)

            run(lambda: start(cluster.topics(spark, delivery=delivery, corrupt_bodies=corrupt_bodies)), count)
        return rows

    return on_spark(name, conf, work)


def _running() -> SparkSession | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def setting_of(text: str) -> tuple[str, str]:
    """Parse `--conf key=value`.

    Raises:
        ConfigError: the text has another form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise ConfigError(f"--conf {text}: write spark.something=value")
    return key, value


def plain(error: Exception) -> TianzhouError:
    """Return a Spark error without tracebacks. An error of this package inside it is returned instead."""
    text = str(error)
    found = _OURS.findall(text)
    if found:
        kind, message = found[-1]
        return (ConfigError if kind == "ConfigError" else TianzhouError)(message.strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return TianzhouError(lines[0] if lines else type(error).__name__)


def pair_of(option: str, text: str) -> tuple[str, str]:
    """Parse `key=value`.

    Raises:
        ConfigError: the text has another form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise ConfigError(f"{option} {text}: write key=value")
    return key, value


def delivery_of(text: str | None) -> str | None:
    """Check the sink's delivery, and return it.

    Raises:
        ConfigError: the value is unknown.
    """
    if text is not None and text not in DELIVERIES:
        raise ConfigError(f"--delivery {text}: expected {' or '.join(DELIVERIES)}")
    return text


def corrupt_bodies_of(text: str, *, sends_bodies: bool = False) -> str:
    """Check the source's option `corruptBodies`, and return it.

    Args:
        text: the value of `--corrupt-bodies`.
        sends_bodies: whether the bodies are sent again, so that they cannot be null.

    Raises:
        ConfigError: the value is unknown, or the pipeline does not support it.
    """
    from tianzhou.spark.rows.rules import CORRUPT_BODIES, NULL

    allowed = [one for one in CORRUPT_BODIES if one != NULL or not sends_bodies]
    if text not in allowed:
        why = "; a message without a body cannot be sent" if text == NULL else ""
        raise ConfigError(f"--corrupt-bodies {text}: expected {' or '.join(allowed)}{why}")
    return text


@app.command()
def source(
    name: Annotated[str | None, typer.Argument(help="The pipeline; without it, all names are listed.")] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write it there: a file, or for declarative a folder.")
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Print a pipeline's file, to copy and change.

    Example: tianzhou pipeline source archive > my_archive.py
    """
    from tianzhou.pipelines import DECLARATIVE, FILES

    names = [*FILES, DECLARATIVE]
    if name is None:
        if to is not None:
            raise ConfigError(f"--to {to}: say what to write; there are {', '.join(names)}")
        print_names(names, output)
        return
    if name not in names:
        raise ConfigError(f"there is no pipeline file {name}; there are {', '.join(names)}")
    if to is not None and to.exists():
        raise ConfigError(f"--to {to}: is there already; name another place")
    if name == DECLARATIVE:
        if to is None:
            raise ConfigError(f"{DECLARATIVE} is a folder; say where to copy it, as with --to orders-pipeline")
        _copy_definitions(to)
        print_fields({"name": name, "to": str(to)}, output)
        return
    text = resources.files("tianzhou.pipelines").joinpath(f"{name}.py").read_text(encoding="utf-8")
    if to is not None:
        to.write_text(text, encoding="utf-8")
        print_fields({"name": name, "to": str(to)}, output)
    elif output is Output.json:
        print_json({"name": name, "text": text})
    else:
        print_text(text.rstrip("\n"))


def _copy_definitions(to: Path) -> None:
    """Copy the folder of `spark-pipelines`. Each copy stores its progress in its own folder."""
    with resources.as_file(resources.files("tianzhou.pipelines").joinpath("declarative")) as folder:
        shutil.copytree(folder, to, ignore=shutil.ignore_patterns("__pycache__"))
    spec = to / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    storage = (to.resolve() / "storage").as_uri()
    spec.write_text(re.sub(r"(?m)^storage: \S+", lambda _: f"storage: {storage}", text), encoding="utf-8")
