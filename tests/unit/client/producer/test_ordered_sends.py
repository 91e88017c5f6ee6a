"""Ordered sends: each waits for the earlier ones in each of its lines, and for no others."""

from __future__ import annotations

import asyncio

from tianzhou.client.producer.ordered_sends import OrderedSends, Turn


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Sends:
    """Sends that wait for their turns.

    Attributes:
        begun: names of the sends whose turn has come, in order.
    """

    def __init__(self) -> None:
        self.lines = OrderedSends()
        self.begun: list[str] = []
        self.turns: dict[str, Turn] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def enter(self, name: str, *lines: str) -> None:
        turn = self.turns[name] = self.lines.enter(lines)

        async def send() -> None:
            try:
                await turn.come()
                self.begun.append(name)
            except asyncio.CancelledError:
                turn.leave()
                raise

        self.tasks[name] = asyncio.create_task(send())

    async def leave(self, name: str) -> None:
        self.turns[name].leave()
        await settle()


async def test_one_of_a_line_after_the_other_and_other_lines_meanwhile() -> None:
    sends = Sends()
    for name, lines in {"a1": "a", "b1": "b", "a2": "a", "ab": "ab", "b2": "b", "c1": "c"}.items():
        sends.enter(name, *lines)
    await settle()
    assert sends.begun == ["a1", "b1", "c1"]
    await sends.leave("b1")
    assert sends.begun == ["a1", "b1", "c1"]
    await sends.leave("a1")
    await sends.leave("a2")
    assert sends.begun[3:] == ["a2", "ab"]
    await sends.leave("ab")
    assert sends.begun[5:] == ["b2"]
    for name in ("b2", "c1"):
        await sends.leave(name)
        await sends.leave(name)  # a second time has no effect
    assert len(sends.lines) == 0


async def test_a_cancelled_send_lets_nobody_overtake_the_one_before_it() -> None:
    sends = Sends()
    for name in ("first", "cancelled", "last"):
        sends.enter(name, "a")
    await settle()
    sends.tasks["cancelled"].cancel()
    await settle()
    assert sends.begun == ["first"]
    await sends.leave("first")
    assert sends.begun == ["first", "last"]
    await sends.leave("last")
    assert len(sends.lines) == 0


async def test_a_send_without_lines_waits_for_nobody() -> None:
    sends = Sends()
    sends.enter("a1", "a")
    sends.enter("free")
    await settle()
    assert sends.begun == ["a1", "free"]
    assert not await sends.turns["free"].come()
