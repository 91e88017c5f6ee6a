"""A pull from a template sends the same request as a pull built in full."""

from types import SimpleNamespace

import pytest

from tianzhou.client.consumer import pulling
from tianzhou.client.consumer.subscription import build_subscription
from tianzhou.model import MessageQueue
from tianzhou.wire.command import decode
from tianzhou.wire.fields import read_header


class Asked:
    """A fake connection or connection pool: it records requests, and returns replies that a pull does not recognise."""

    def __init__(self, hooked):
        self.hooked = hooked
        self.group = SimpleNamespace(opaques=SimpleNamespace(next=lambda: 5))
        self.requests = []

    def connected(self, address):
        return self

    async def invoke(self, address, command, timeout_ms):
        self.requests.append((command, timeout_ms))
        raise ConnectionError

    async def invoke_frame(self, opaque, frame, timeout_ms):
        assert opaque == 5
        self.requests.append((frame, timeout_ms))
        raise ConnectionError


def asked(pulls, offset, commit_offset, *, in_full):
    remoting = Asked(hooked=in_full)
    with pytest.raises(ConnectionError):
        pulls.pull(remoting, "127.0.0.1:1", offset, commit_offset).send(None)
    ((request, timeout_ms),) = remoting.requests
    assert timeout_ms == 30_000
    return request


@pytest.mark.parametrize("commit_offset", [None, 0, 7])
@pytest.mark.parametrize("suspend_ms", [0, 15_000])
@pytest.mark.parametrize("max_bytes", [None, 1 << 18])
@pytest.mark.parametrize(
    ("post", "subscription"),
    [
        (False, build_subscription("T", "A || B", version_ms=99)),
        (True, build_subscription("T", "A || B", version_ms=99)),
        (True, build_subscription("T", sql="a = 'it\"s \\\\ é \u2028'", version_ms=99)),
        (False, build_subscription("T", sql="a > 3", version_ms=99)),
    ],
)
def test_a_frame_says_what_the_request_in_full_says(commit_offset, suspend_ms, max_bytes, post, subscription):
    pulls = pulling.QueuePulls(
        'G"é',
        MessageQueue("T", "b-\\ 1", 3),
        subscription,
        max_messages=32,
        max_bytes=max_bytes,
        suspend_ms=suspend_ms,
        timeout_ms=30_000,
        post_subscription=post,
    )
    expected = asked(pulls, 12, commit_offset, in_full=True)
    frame = asked(pulls, 12, commit_offset, in_full=False)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found = decode(frame[4:])
    assert found.opaque == 5
    assert found.fields == expected.fields
    assert read_header(found) == read_header(expected)
    for name in ("code", "flag", "language", "version", "serialize_type", "body", "remark"):
        assert getattr(found, name) == getattr(expected, name), name
