"""`undelivered list|resend`: output for messages that a broker has set aside, and their delivery."""

from __future__ import annotations

import json
from collections.abc import Callable

from tianzhou import Message
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]


def test_messages_that_are_set_aside_are_listed_and_delivered(run: Run) -> None:
    with Cluster(virtual=False) as cluster:
        cluster.create_topic("orders", 1)
        cluster.create_topic("large", 1)
        servers = "-n", cluster.namesrv_addr
        assert run("undelivered", "list", *servers)[::2] == (0, "no message is set aside\n")
        with cluster.producer("shop") as producer:
            for number in range(2):
                producer.send(Message("orders", b"x" * 3_000, delay_level=1, keys=f"k{number}"))
        assert run("config", "set", "maxMessageSize=1000", *servers)[0] == 0
        with cluster.admin() as admin:
            cluster.wait_until(lambda: len(admin.undeliverable.list()) == 2, "both are set aside")
        code, out, _ = run("status", *servers)
        assert (code, "2 messages cannot be delivered" in out.splitlines()[0]) == (1, True)
        code, out, _ = run("undelivered", "list", *servers)
        assert code == 0
        assert out.count("maxMessageSize is 1000") == 2
        first, second = json.loads(run("undelivered", "list", "-o", "json", *servers)[1])
        assert (first["topic"], first["ledger"], first["body_bytes"]) == ("orders", "delay", 3_000)
        code, out, err = run("undelivered", "resend", "--all", *servers)
        assert (code, out) == (1, "0 messages delivered, 2 failed\n")
        assert "still cannot be delivered" in err
        assert run("undelivered", "resend", *servers)[0] == 1
        assert "has the id nonsense" in run("undelivered", "resend", "nonsense", *servers)[2]
        assert run("config", "set", "maxMessageSize=10000", *servers)[0] == 0
        assert run("undelivered", "resend", first["id"], "--to", "large", *servers)[:2] == (
            0, "1 message delivered, 0 failed\n",
        )  # fmt: skip
        found = json.loads(run("undelivered", "resend", "--all", "-o", "json", *servers)[1])
        assert found == {"delivered": [second["id"]], "failed": []}
        assert run("status", *servers)[0] == 0
        with cluster.admin() as admin:
            stats = [admin.topics.stats(topic).offset_table.values() for topic in ("orders", "large")]
            assert [one.max_offset for found in stats for one in found] == [1, 1]
