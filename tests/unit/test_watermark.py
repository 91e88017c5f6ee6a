"""The waiting primitive for offsets and positions."""

from __future__ import annotations

import asyncio

import pytest

from tianzhou.watermark import WAKES_PER_TURN, Watermark


async def test_reach_returns_at_once_when_the_mark_is_there() -> None:
    await Watermark(5).reach(5)


async def test_advance_wakes_exactly_those_it_passes() -> None:
    mark = Watermark()
    waits = {n: asyncio.create_task(mark.reach(n)) for n in (1, 2, 3)}
    await asyncio.sleep(0)
    mark.advance(2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert {n for n, task in waits.items() if task.done()} == {1, 2}
    mark.advance(3)
    await waits[3]


def test_the_mark_never_goes_back() -> None:
    mark = Watermark(7)
    mark.advance(3)
    assert mark.value == 7


async def test_a_cancelled_waiter_is_forgotten_and_the_others_still_wake() -> None:
    mark = Watermark()
    gone = asyncio.create_task(mark.reach(1))
    stays = asyncio.create_task(mark.reach(1))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert mark.waiting == 1
    mark.advance(1)
    await stays


async def test_many_timed_out_waiters_do_not_pile_up() -> None:
    mark = Watermark()
    for _ in range(2_000):
        task = asyncio.create_task(mark.reach(1))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert mark.waiting <= 65


def test_thousands_that_time_out_together_cost_each_the_same() -> None:
    looks = 0

    class Counted(asyncio.Future):  # type: ignore[type-arg]
        def done(self) -> bool:
            nonlocal looks
            looks += 1
            return super().done()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.create_future = lambda: Counted(loop=loop)  # type: ignore[method-assign]
        mark = Watermark()
        tasks = [asyncio.create_task(mark.reach(1)) for _ in range(4_000)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait(tasks)
        assert mark.waiting == 0

    asyncio.run(main())
    assert looks < 10 * 4_000


async def test_fail_reaches_present_and_future_waiters_but_not_what_was_passed() -> None:
    mark = Watermark(4)
    waiter = asyncio.create_task(mark.reach(5))
    await asyncio.sleep(0)
    mark.fail(OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        await waiter
    with pytest.raises(OSError, match="disk"):
        await mark.reach(6)
    await mark.reach(4)


def test_thousands_are_woken_a_few_a_turn_the_longest_waiting_first_and_none_forgotten() -> None:
    woken: list[int] = []
    others: list[int] = []

    async def wait(mark: Watermark, number: int, value: int) -> None:
        await mark.reach(value)
        woken.append(number)

    async def main() -> None:
        mark = Watermark()
        # Two marks: waiters of the second are passed while those of the first are still being woken.
        tasks = [asyncio.create_task(wait(mark, number, 1 if number < 600 else 2)) for number in range(1_000)]
        await asyncio.sleep(0)
        tasks[5].cancel()
        await asyncio.sleep(0)
        mark.advance(1)
        turns = 0
        while mark.waiting:
            before = len(woken)
            await asyncio.sleep(0)
            others.append(len(woken))
            assert len(woken) - before <= WAKES_PER_TURN
            turns += 1
            assert turns < 100
            if turns == 5:
                mark.advance(2)
                tasks[700].cancel()
        await asyncio.wait(tasks)
        await mark.reach(2)

    asyncio.run(main())
    assert woken == [number for number in range(1_000) if number not in {5, 700}]
    assert len(others) >= 1_000 // WAKES_PER_TURN - 1


async def test_who_was_passed_before_the_mark_failed_is_told_so() -> None:
    mark = Watermark()
    passed = [asyncio.create_task(mark.reach(1)) for _ in range(3 * WAKES_PER_TURN)]
    stuck = asyncio.create_task(mark.reach(2))
    await asyncio.sleep(0)
    mark.advance(1)
    mark.fail(OSError("disk"))
    assert await asyncio.gather(*passed) == [None] * len(passed)
    with pytest.raises(OSError, match="disk"):
        await stuck


async def test_what_is_done_when_the_mark_is_there_or_failed_and_may_be_forgotten() -> None:
    mark = Watermark(5)
    there, early, late = mark.reached(5), mark.reached(7), mark.reached(9)
    dropped = [mark.reached(8) for _ in range(20)]
    assert there.done()
    for future in dropped:
        mark.forget(future)
    assert mark.waiting <= 4
    mark.advance(7)
    assert early.done()
    assert not late.done()
    mark.forget(early)
    assert not early.cancelled()
    mark.fail(OSError("the disk is gone"))
    with pytest.raises(OSError, match="disk"):
        late.result()
    with pytest.raises(OSError, match="disk"):
        mark.reached(9).result()
    assert mark.reached(6).result() is None


class OwnWaiter:
    """A waiter that is no future."""

    def __init__(self) -> None:
        self.came: list[BaseException | None] = []
        self.gone = False

    def done(self) -> bool:
        return self.gone or bool(self.came)

    def set_result(self, _: None) -> None:
        self.came.append(None)

    def set_exception(self, error: BaseException) -> None:
        self.came.append(error)


async def test_waiters_of_ones_own_hear_of_it_at_once() -> None:
    mark, error = Watermark(5), OSError("disk")
    there, early, late, after = (OwnWaiter() for _ in range(4))
    mark.wait(5, there)
    mark.wait(7, early)
    mark.wait(9, late)
    assert (there.came, early.came) == ([None], [])
    dropped = [OwnWaiter() for _ in range(20)]
    for one in dropped:
        mark.wait(8, one)
        one.gone = True
        mark.left()
    assert mark.waiting <= 5
    mark.advance(8)
    assert (early.came, late.came) == ([None], [])
    assert not any(one.came for one in dropped)
    mark.fail(error)
    mark.wait(10, after)
    assert (late.came, after.came) == ([error], [error])
