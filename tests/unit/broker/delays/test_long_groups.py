"""Groups with names too long for a retry topic: a failed message blocks no delayed message and no retry."""

from __future__ import annotations

from collections import Counter

from tianzhou.model import MessageExt
from tianzhou.testing import AsyncCluster, run_virtual

LONG_GROUP = "g" * 249


def test_a_failed_message_of_a_long_group_holds_up_nobody() -> None:
    seen: Counter[tuple[str, bytes]] = Counter()

    async def main() -> None:
        async with AsyncCluster(virtual=True) as cluster, cluster.admin() as admin:
            await cluster.create_topic("orders", 1)
            await cluster.create_topic("late", 1)
            members = [cluster.push_consumer(group) for group in (LONG_GROUP, "short")]
            for consumer in members:
                group = consumer.group

                async def consume(message: MessageExt, group: str = group) -> None:
                    seen[group, message.body] += 1
                    if seen[group, message.body] == 1:
                        raise ValueError("not yet")

                consumer.subscribe("orders", handler=consume)
            async with members[0], members[1]:
                for number in range(3):
                    await cluster.send("orders", f"{number}")
                    await cluster.send("late", f"{number}", delay_level=3)
                await cluster.wait_until(lambda: all(seen["short", b"%d" % n] == 2 for n in range(3)), "retries come")
                await cluster.wait_until(lambda: all(seen[LONG_GROUP, b"%d" % n] for n in range(3)), "all are tried")
                await cluster.advance(minutes=2)
                assert len(await cluster.messages("late")) == 3
                aside = await admin.undeliverable.list()
                assert {one.topic for one in aside} == {f"%RETRY%{LONG_GROUP}"}
                assert len(aside) == 3
                lag = await admin.groups.lag(LONG_GROUP, topic="orders")
                assert lag.total == 0
                assert len((await admin.undeliverable.resend(aside, to="orders")).delivered) == 3
                await cluster.advance(seconds=10)
        assert all(seen[LONG_GROUP, b"%d" % n] == 2 for n in range(3))

    run_virtual(main())
