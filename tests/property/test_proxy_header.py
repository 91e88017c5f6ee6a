"""PROXY headers: every written header is read, also in pieces, and no byte after it is consumed."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ProtocolError
from tianzhou.remoting.proxies.proxy import FIRST_BYTES, ProxyHeader, missing, parse

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
ADDRESSES = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)), st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6))
)
PORTS = st.integers(0, 65_535)
VALUES = st.dictionaries(st.integers(0, 255), st.text(st.characters(max_codepoint=127), max_size=40), max_size=5)


def taken(stream: bytes) -> bytes:
    """Return the bytes that a reader consumes when it requests only the missing ones."""
    data = b""
    while count := missing(data):
        assert len(data) + count <= len(stream)
        data += stream[len(data) : len(data) + count]
    return data


def binary(source, target, ports, values, command=0x21) -> bytes:
    family = 0x11 if source.version == 4 else 0x21
    tlvs = b"".join(struct.pack(">BH", kind, len(text)) + text.encode() for kind, text in values.items())
    rest = source.packed + target.packed + struct.pack(">HH", *ports) + tlvs
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest


@given(ADDRESSES, st.tuples(PORTS, PORTS), st.binary(max_size=50))
def test_the_text_form(addresses, ports, behind):
    source, target = addresses
    header = f"PROXY TCP{source.version} {source} {target} {ports[0]} {ports[1]}\r\n".encode()
    assert header[:1] in FIRST_BYTES
    assert taken(header + behind) == header
    assert parse(header) == ProxyHeader(f"{source}:{ports[0]}", str(source))


@given(ADDRESSES, st.tuples(PORTS, PORTS), VALUES, st.binary(max_size=50))
def test_the_binary_form(addresses, ports, values, behind):
    header = binary(*addresses, ports, values)
    assert header[:1] in FIRST_BYTES
    assert taken(header + behind) == header
    assert parse(header) == ProxyHeader(f"{addresses[0]}:{ports[0]}", str(addresses[0]), values)


@given(ADDRESSES, st.tuples(PORTS, PORTS))
def test_a_balancer_that_speaks_for_itself_names_nobody(addresses, ports):
    assert parse(binary(*addresses, ports, {}, command=0x20)) == ProxyHeader()
    assert parse(b"PROXY UNKNOWN\r\n") == parse(b"PROXY UNKNOWN ::1 ::1 1 2\r\n") == ProxyHeader()


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=120).map(lambda b: b"PROXY " + b),
        st.binary(max_size=120).map(lambda b: SIGNATURE + b),
    )
)
def test_whatever_comes_is_a_header_or_a_protocol_error(data):
    try:
        while (count := missing(data)) and count <= 1_000:
            data += b" " * count
        if not count:
            parse(data)
    except ProtocolError:
        pass


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 65536 2\r\n",
        b"PROXY UDP4 10.0.0.1 10.0.0.2 1 2\r\n",
        b"PROXY \xff\r\n",
        b"PROXY      \r\n",
        b"PROXY UNKNOWN\n",
        b"PROXY x\r\nGET / HTTP",
        SIGNATURE + b"\x31\x11\0\0",
        SIGNATURE + b"\x21\x11\0\x04aaaa",
        SIGNATURE + b"\x21\x11\0\x0f" + b"a" * 12 + b"\x01\0\x09",
    ],
)
def test_what_is_malformed_is_refused(header):
    assert missing(header) == 0
    with pytest.raises(ProtocolError, match="malformed PROXY header"):
        parse(header)


def test_a_text_without_an_end_is_refused():
    with pytest.raises(ProtocolError, match="more than 107 bytes"):
        taken(b"PROXY TCP4 " + b"1" * 200)


def test_ipv6_is_spelled_as_addresses_are():
    address = ipaddress.ip_address("2001:db8::1")
    assert parse(binary(address, address, (5, 6), {})).source == "2001:db8::1:5"
