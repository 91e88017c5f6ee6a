"""Peers that request large replies and read none: `maxUnreadReplyBytes` limits the memory of the process."""

from __future__ import annotations

import random
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from processes import serve

from tianzhou import sync
from tianzhou.model import Message
from tianzhou.remoting.tls import TlsSettings, client_context
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command, encode
from tianzhou.wire.fields import write_header
from waiting import until

MIB = 1 << 20
LIMIT_BYTES = 32 * MIB
MESSAGES = 4
PEERS = 40
REPLY_BYTES = 8 * MIB
"""Bytes of messages in a reply. `tianzhou serve` sends two of these messages in one reply."""
REST_BYTES = 16 * MIB + PEERS * 256 * 1024
"""Bytes above the bound: the replies that exceed it, and the memory of connections, TLS and the allocator."""


def pulls(queue_id: int) -> bytes:
    """Return the bytes of four pull requests, which together request the messages of a queue several times."""
    fields = [
        write_header(
            RequestCode.PULL_MESSAGE, consumer_group="deaf", topic="large", queue_id=queue_id, queue_offset=number % 2,
            max_msg_nums=32, sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
        )
        for number in range(4)
    ]  # fmt: skip
    return b"".join(encode(Command(RequestCode.PULL_MESSAGE, opaque, fields=one)) for opaque, one in enumerate(fields))


@pytest.mark.parametrize("speaks", ["plain", "tls"])
def test_what_is_not_read_stays_within_the_stated_bound(tmp_path: Path, speaks: str) -> None:
    settings = "--set", f"maxUnreadReplyBytes={LIMIT_BYTES}"
    with serve(tmp_path, *settings) as server, ExitStack() as stack:
        ready = server.ready()
        host, _, port = ready["broker"].rpartition(":")
        with sync.Producer("p", ready["namesrv"]) as producer:
            queue = producer.send(Message("large", b"first")).queue
            for number in range(MESSAGES):
                body = random.Random(number).randbytes(4 * MIB - 100)
                producer.send(Message("large", body), queue=queue)
        admin = stack.enter_context(sync.Admin(ready["namesrv"]))

        def refused() -> int:
            return int(admin.cluster.runtime(ready["broker"]).get("refused_maxUnreadReplyBytes", 0))

        context = client_context(TlsSettings()) if speaks == "tls" else None

        def connect() -> socket.socket:
            plain = stack.enter_context(socket.create_connection((host, int(port))))
            return plain if context is None else stack.enter_context(context.wrap_socket(plain))

        connect()  # the first handshake loads libraries
        before, mapped_before = server.figure("VmRSS"), server.figure("RssFile")
        for _ in range(PEERS):
            peer = connect()
            with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):  # disconnected already
                peer.sendall(pulls(queue.queue_id))
        # The server disconnects all peers except the ones whose replies fit into the bound.
        until(lambda: refused() >= PEERS - 2 * LIMIT_BYTES // REPLY_BYTES, "peers are disconnected")
        # Pages of the mapped log, which pulls read, belong to the system's cache.
        mapped = max(server.figure("RssFile") - mapped_before, 0)
        assert server.figure("VmHWM") - before - mapped <= 2 * LIMIT_BYTES + REST_BYTES
        with sync.PullConsumer("reads", ready["namesrv"]) as consumer:
            consumer.assign([queue])
            consumer.seek(queue, 0)
            assert consumer.poll(timeout_ms=5000)[0].body == b"first"
