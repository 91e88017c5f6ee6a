"""Name server addresses and client ids."""

import pytest

from tianzhou.client.cluster.identity import instance_name, local_ip, make_client_id, name_server_addresses
from tianzhou.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1;b:2", ["a:1", "b:2"]),
        (" a:1 ; ;a:1;", ["a:1"]),
        (["a:1", "b:2"], ["a:1", "b:2"]),
        ("http://a:1", ["a:1"]),
        ("[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_addresses(given, expected):
    assert name_server_addresses(given) == expected


def test_the_environment_names_them_too(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert name_server_addresses(None) == ["a:1", "b:2"]
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        name_server_addresses(None)


@pytest.mark.parametrize("given", ["a", "a:", ":1", "a:b", "a:70000"])
def test_what_is_no_address_is_named(given):
    with pytest.raises(ConfigError, match="is no host:port"):
        name_server_addresses(given)


def test_ids_are_unique_even_within_a_clock_tick():
    assert len({instance_name() for _ in range(500)}) == 500


def test_ids_are_spelled_as_rocketmq_does():
    assert make_client_id("10.0.0.1", "1#2") == "10.0.0.1@1#2"
    assert make_client_id("10.0.0.1", "1#2", "u") == "10.0.0.1@1#2@u"


def test_the_address_towards_loopback_is_loopback():
    assert local_ip("127.0.0.1:9876") == "127.0.0.1"
