"""Connections in memory behave like those through a kernel."""

import asyncio

import pytest

from broker_probe import ConnectionProbe
from tianzhou import Message
from tianzhou.testing import Cluster
from tianzhou.testing.pipe import HIGH_BYTES, PipeEnd


class Talker(asyncio.BufferedProtocol):
    def __init__(self, room=7):
        self.events, self.got, self.transport = [], b"", None
        self._buffer = bytearray(room)

    def connection_made(self, transport):
        self.transport = transport
        self.events.append(("made", transport.get_extra_info("peername")))

    def get_buffer(self, sizehint):
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes):
        self.got += self._buffer[:nbytes]

    def eof_received(self):
        self.events.append("eof")

    def pause_writing(self):
        self.events.append("pause")

    def resume_writing(self):
        self.events.append("resume")

    def connection_lost(self, exc):
        self.events.append(("lost", exc))


def pair(**rooms):
    client, server = Talker(**rooms), Talker(**rooms)
    PipeEnd.pair(asyncio.get_running_loop(), client, server, (50_000, 9_876))
    return client, server


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_bytes_come_in_order_and_each_end_knows_the_other():
    client, server = pair()
    for number in range(100):
        client.transport.write(b"%d," % number)
    client.transport.writelines([b"end"])
    server.transport.write(b"answer")
    assert server.got == b""  # never in the turn they are written in
    await turns()
    assert server.got == b"".join(b"%d," % number for number in range(100)) + b"end"
    assert client.got == b"answer"
    assert client.events == [("made", ("127.0.0.1", 9_876))]
    assert server.events == [("made", ("127.0.0.1", 50_000))]


async def test_the_other_end_reads_everything_before_it_hears_of_the_end():
    client, server = pair()
    client.transport.write(b"last words")
    client.transport.close()
    client.transport.write(b"too late")
    assert client.transport.is_closing()
    await turns()
    assert server.got == b"last words"
    assert server.events[1:] == ["eof", ("lost", None)]
    assert client.events[1:] == [("lost", None)]
    server.transport.write(b"nobody is there")
    server.transport.close()
    await turns()
    assert server.events[1:] == ["eof", ("lost", None)]


async def test_who_does_not_read_holds_up_who_writes_and_the_end():
    client, server = pair(room=1_000)
    server.transport.pause_reading()
    client.transport.write(b"x" * HIGH_BYTES)
    assert client.events[1:] == []
    client.transport.write(b"y")
    assert client.events[1:] == ["pause"]
    client.transport.close()
    await turns()
    assert (server.got, server.events[1:]) == (b"", [])
    server.transport.resume_reading()
    await turns()
    assert len(server.got) == HIGH_BYTES + 1
    assert server.events[1:] == ["eof", ("lost", None)]


async def test_reading_may_stop_in_the_middle():
    client, server = pair(room=3)
    took = Talker.buffer_updated

    def three(nbytes):
        took(server, nbytes)
        if len(server.got) == 3:
            server.transport.pause_reading()

    server.buffer_updated = three
    client.transport.write(b"abcdef")
    client.transport.write(b"ghi")
    await turns()
    assert server.got == b"abc"
    server.transport.resume_reading()
    await turns()
    assert server.got == b"abcdefghi"


@pytest.mark.parametrize("virtual", [True, False])
def test_clients_of_a_virtual_cluster_take_the_short_way(virtual):
    with Cluster(virtual=virtual) as cluster, cluster.producer() as producer:
        cluster.create_topic("orders")
        producer.send(Message("orders", b"a"))
        kinds = {type(ConnectionProbe(one).transport) for one in producer.instance.remoting.group.connections}
        assert (kinds == {PipeEnd}) is virtual
