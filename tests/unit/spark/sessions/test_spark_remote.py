"""Spark Connect: server addresses, and the errors for a wrong or unreachable one."""

import socket
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from pyspark import SparkContext

from tianzhou.errors import ConfigError
from tianzhou.spark import session
from tianzhou.spark.sessions.remote import Address, address, connect


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    """Hide the session that other tests of the process may have."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("sc://spark-1", ("spark-1", 15002)),
        ("sc://10.0.0.1:15003", ("10.0.0.1", 15003)),
        ("sc://[::1]:7", ("::1", 7)),
        ("sc://spark.example:443/;use_ssl=true;token=abc:/@", ("spark.example", 443)),
        ("sc://spark-1:15002/", ("spark-1", 15002)),
    ],
)
def test_addresses(remote, expected):
    assert address(remote) == Address(*expected)


@pytest.mark.parametrize(
    "remote",
    [
        "spark://a:7077",
        "a:15002",
        "sc://",
        "sc://a:0",
        "sc://a:99999",
        "sc://a:b",
        "sc://a:1/db",
        "sc://u@a:1",
        "sc://a;x=y",
    ],
)
def test_other_forms_are_named_with_the_right_one(remote):
    with pytest.raises(ConfigError, match=r"expected sc://HOST:PORT of a Spark Connect server") as caught:
        address(remote)
    assert str(caught.value).startswith(f"remote={remote}: ")


def test_no_server_is_named(monkeypatch):
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    with pytest.raises(ConfigError, match="no server is named; give remote=sc://HOST:PORT or set SPARK_REMOTE"):
        session(profile="connect")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"profile": "cluster", "remote": "sc://a"}, "sc://a: goes with profile=connect, not with profile=cluster"),
        ({"remote": "sc://a", "master": "local[2]"}, r"local\[2\]: a Spark Connect server has its own; leave it out"),
        ({"profile": "remote"}, "profile=remote: expected one of local, test, cluster, connect"),
    ],
)
def test_what_does_not_go_together(given, text):
    with pytest.raises(ConfigError, match=text):
        session(**given)


def test_nothing_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # taken, and not listening
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127.0.0.1:{port}: nothing listens at 127.0.0.1:{port}"):
            connect("app", f"sc://127.0.0.1:{port}", {}, {})


def test_the_environment_names_the_server():
    with pytest.raises(ConfigError, match="remote=nonsense: expected sc://"):
        connect("app", None, {}, {"SPARK_REMOTE": "nonsense"})


def test_packages_of_the_client_are_missing(monkeypatch):
    def refuse(name, package=None):
        raise ModuleNotFoundError("No module named 'grpc'", name="grpc")

    monkeypatch.setattr("tianzhou.spark.sessions.remote.import_module", refuse)
    with pytest.raises(ConfigError, match=r"\(No module named 'grpc'\); pip install 'tianzhou\[connect\]'"):
        connect("app", "sc://127.0.0.1:1", {}, {})


def test_this_process_has_a_spark_of_its_own(monkeypatch):
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(master="local[2]"))
    with pytest.raises(ConfigError, match=r"remote=sc://a: this process has a Spark of its own \(master local\[2\]\)"):
        connect("app", "sc://a", {}, {})
