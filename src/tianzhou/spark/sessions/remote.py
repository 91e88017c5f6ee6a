"""A session on a Spark Connect server. The client needs neither Java nor a cluster; the server needs this package."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import tianzhou
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_PORT: Final = 15002
PROBE_S: Final = 10
_FORM = re.compile(r"sc://(?P<host>\[[0-9A-Fa-f:.]+\]|[^/:;@?#\[\]\s]+)(?::(?P<port>\d{1,5}))?(?:/(?:;.*)?)?")
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY")


class Address(NamedTuple):
    """The address of a Spark Connect server."""

    host: str
    port: int


def address(remote: str) -> Address:
    """Return host and port of `sc://HOST:PORT`, with or without parameters.

    Raises:
        ConfigError: the text has another form.
    """
    found = _FORM.fullmatch(remote)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < 65536:
        raise ConfigError(
            f"remote={remote}: expected sc://HOST:PORT of a Spark Connect server, "
            "with parameters sc://HOST:PORT/;use_ssl=true;token=…"
        )
    return Address(found["host"].strip("[]"), port)


def connect(app: str, remote: str | None, values: Mapping[str, str], environ: Mapping[str, str]) -> SparkSession:
    """Return a session on a Spark Connect server that has `format("tianzhou")`.

    Args:
        app: the application's name.
        remote: `sc://HOST:PORT`; None for `SPARK_REMOTE` of the environment.
        values: Spark settings; settings that belong to the server are not changed.
        environ: the environment.

    Raises:
        ConfigError: no server is given, the server cannot be reached or lacks this package, Spark's client lacks
            packages, or this process has a session of its own.
    """
    remote = remote or environ.get("SPARK_REMOTE")
    if not remote:
        raise ConfigError("profile=connect: no server is named; give remote=sc://HOST:PORT or set SPARK_REMOTE")
    where = address(remote)
    try:
        import_module("pyspark.sql.connect.session")
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f"Spark Connect cannot be imported ({error}); pip install 'tianzhou[connect]'") from error
    own = SparkContext._active_spark_context
    if own is not None:
        raise ConfigError(
            f"remote={remote}: this process has a Spark of its own (master {own.master}), and Spark allows no other "
            "beside it; stop it first, or connect from another process"
        )
    if not any(environ.get(name) for name in _PROXIES):
        _refused(remote, where)
    builder = SparkSession.builder.remote(remote).appName(app)
    for key, value in values.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    _probe(made, remote)
    return made


def _refused(remote: str, where: Address) -> None:
    """Raise an error immediately if nothing listens. Spark's client would retry for ten minutes."""
    try:
        socket.create_connection(where, timeout=PROBE_S).close()
    except ConnectionRefusedError as error:
        raise ConfigError(
            f"remote={remote}: nothing listens at {where.host}:{where.port}; start a Spark Connect server there "
            "(docs/howto/spark-cluster.md)"
        ) from error
    except OSError:
        return  # Spark's client reports the error in more detail.


def _probe(made: SparkSession, remote: str) -> None:
    """Let the server load the source once. No broker is queried."""
    try:
        _ = made.read.format("tianzhou").options(namesrvAddr="127.0.0.1:1", subscribe="probe").load().schema
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        made.stop()
        raise ConfigError(
            f"remote={remote}: the server does not know format tianzhou; "
            f"pip install 'tianzhou[spark]=={tianzhou.__version__}' for the Python it runs (its PYSPARK_PYTHON) and "
            "for that of its workers, and restart it: a server looks for sources once"
        ) from error
