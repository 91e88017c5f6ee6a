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


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("a", "has no port"),
        ("a:", "has no port behind ':'"),
        (":1", "has no host"),
        ("a:b", "port 'b' is no number"),
        ("a:70000", "port 70000 is not between 1 and 65535"),
        ("a:0", "port 0 is not between"),
        ("a:" + "9" * 5_000, "is not between"),
        ("127.0.0.1:9876/", "it ends with /; leave that out"),
        ("127.0.0.1:9876/console", "it ends with /console"),
        ("//a:1", "it begins with /"),
        ("http://a:1/", "it ends with /"),
        ("tcp://a:1", "it begins with tcp://"),
        ("a:1 b:2", "contains a space; join several addresses with ';'"),
        ("a\u200b:1", "cannot be seen"),
        ("a:\uff19\uff18", "is no number in the digits 0 to 9"),
        ("a:\u00b2", "is no number in the digits 0 to 9"),
        ("::1", r"needs brackets and a port; write \[::1\]:9876"),
        ("fe80::1:9876", r"an IPv6 address needs brackets"),
        ("2001:db8:0:0:0:0:0:1:9876", r"write \[2001:db8:0:0:0:0:0:1\]:9876"),
        ("[::1]", r"it has no port; write \[::1\]:9876"),
        ("[::1:9876", "is not closed"),
        ("[here]:1", "'here' in brackets is no IPv6 address"),
        ("a:b:1", "more than one ':'"),
    ],
)
def test_what_is_no_address_is_named_with_its_fault(given, fault):
    with pytest.raises(ConfigError, match=f"is no host:port, as in 127.0.0.1:9876: .*{fault}") as caught:
        name_server_addresses(given)
    assert repr(given[:20])[1:-1] in str(caught.value)
    with pytest.raises(ConfigError, match=fault):
        name_server_addresses(["ok:1", given])


def test_each_faulty_address_is_named_and_the_environment_as_their_source(monkeypatch):
    with pytest.raises(ConfigError) as caught:
        name_server_addresses("ok:1;a;b:x")
    assert [text.split(" ")[3] for text in caught.value.texts] == ["'a'", "'b:x'"]
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876/")
    with pytest.raises(ConfigError, match=r"^the environment's NAMESRV_ADDR: name server address '127.0.0.1:9876/'"):
        name_server_addresses(None)
    with pytest.raises(ConfigError, match="name server address 9876 is a int"):
        name_server_addresses([9876])


@pytest.mark.parametrize("given", [";", " ", [""]])
def test_a_text_without_an_address_is_named(given):
    with pytest.raises(ConfigError, match="no name server address in "):
        name_server_addresses(given)


def test_ids_are_unique_even_within_a_clock_tick():
    assert len({instance_name() for _ in range(500)}) == 500


def test_ids_are_spelled_as_rocketmq_does():
    assert make_client_id("10.0.0.1", "1#2") == "10.0.0.1@1#2"
    assert make_client_id("10.0.0.1", "1#2", "u") == "10.0.0.1@1#2@u"


def test_the_address_towards_loopback_is_loopback():
    assert local_ip("127.0.0.1:9876") == "127.0.0.1"
