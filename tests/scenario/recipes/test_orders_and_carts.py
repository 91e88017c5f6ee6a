"""The recipe of orders and carts, typed as printed. Its databases agree whatever process is killed."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from processes import Tianzhou, environment
from typist import HOWTO, Typist, blocks_of

from waiting import until

PAGE, CHINESE = "recipes/orders-and-carts.md", "recipes/orders-and-carts.zh.md"
QUESTIONS = {"transactionTimeOut": 300, "transactionCheckInterval": 300, "transactionCheckMax": 1_000}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

BEFORE_THE_ORDER = "orders.write_order = lambda *given: die()"
IN_THE_ORDER = "orders.write_order = lambda *given: (setattr(DyingAtExit, 'dies', True), write(*given))"
AFTER_THE_ORDER = "orders.write_order = lambda *given: (write(*given), die())"
DYING_ORDERS = """
import asyncio, functools, os, signal, sqlite3, sys
sys.path.insert(0, ".")
def die():
    os.kill(os.getpid(), signal.SIGKILL)
class DyingAtExit(sqlite3.Connection):
    dies = False
    def __exit__(self, *given):
        die() if self.dies else super().__exit__(*given)
import orders
write = orders.write_order
orders.sqlite3.connect = functools.partial(sqlite3.connect, factory=DyingAtExit)
{step}
asyncio.run(orders.main(sys.argv[1:]))
"""

BEFORE_THE_ID = "def connect(self): die()"
BEFORE_THE_COMMIT = "def commit(self): die()"
AFTER_THE_COMMIT = "def commit(self): sqlite3.Connection.commit(self); die()"
DYING_CARTS = """
import asyncio, functools, os, signal, sqlite3, sys
sys.path.insert(0, ".")
def die():
    os.kill(os.getpid(), signal.SIGKILL)
class Dying(sqlite3.Connection):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        if hasattr(self, "connect"):
            self.connect()
    {step}
import carts
carts.sqlite3.connect = functools.partial(sqlite3.connect, factory=Dying)
asyncio.run(carts.main())
"""


class Shop(Typist):
    """Types the page, whose programs are files of the test's folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        for text in re.findall(
            r"^```python\n(# (\S+)\n.*?)^```", (HOWTO / PAGE).read_text("utf-8"), re.MULTILINE | re.DOTALL
        ):
            (folder / text[1]).write_text(self.here(text[0]), encoding="utf-8")

    def one(self, command: str, shown: str) -> None:
        program, *words = command.split()
        if program == "python" and words[-1] != "&":
            assert self.python(*words) == shown, command
        elif program == "python":
            self.running[words[0]] = self.stack.enter_context(self.started(*words[:-1]))
        else:
            super().one(command, shown)

    def start(self, words: list[str]) -> Tianzhou:
        if words[0] == "serve":
            words = [*words, "--namesrv-port", self.port("9876"), "--broker-port", self.port("10911")]
        return super().start(words)

    def python(self, *words: str) -> str:
        """Run a program of the page; return its output."""
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def started(self, name: str, *words: str, program: str = "") -> Tianzhou:
        """Start a program of the page, or one that kills itself at a step of it."""
        return Tianzhou(self.folder, *words, program=program or (self.folder / name).read_text("utf-8"))

    def killed(self, program: str, *words: str) -> None:
        """Wait for a program that kills itself."""
        with self.started("", *words, program=program) as child:
            assert child.wait() == -signal.SIGKILL, child.err

    def rows(self, database: str, sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.folder / database, timeout=30)) as connection:
            return connection.execute(sql).fetchall()

    def consumed(self) -> int:
        """Number of orders that were taken out of carts."""
        return int(str(self.rows("carts.db", "SELECT sum(orders) FROM carts")[0][0]))


def test_the_page_is_typed_as_it_is_printed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        shop = Shop(tmp_path, stack)
        [block] = blocks_of(PAGE)
        before, consumer, after = block.partition("$ python carts.py &\n")
        assert consumer
        shop.type(before)
        shop.type(consumer)
        until(lambda: shop.consumed() == 1, "the cart is emptied")
        shop.type(after)


def test_the_chinese_page_has_the_same_programs() -> None:
    pages = [(HOWTO / page).read_text("utf-8") for page in (PAGE, CHINESE)]
    assert FENCED.findall(pages[0]) == FENCED.findall(pages[1])
    assert len(FENCED.findall(pages[0])) == 5


@pytest.mark.parametrize("only_carts", [False, True], ids=["orders are killed", "carts are killed"])
def test_both_databases_agree_whatever_is_killed(tmp_path: Path, *, only_carts: bool) -> None:
    with ExitStack() as stack:
        shop = Shop(tmp_path, stack)
        shop.port("10911")
        conf = "".join(f"{key}={value}\n" for key, value in QUESTIONS.items())
        shop.start(["namesrv"])
        conf += f"namesrvAddr=127.0.0.1:{shop.port('9876')}\nstorePathRootDir={tmp_path}/store\n"
        shop.write("broker.conf", conf)
        shop.start(["broker", "-c", "broker.conf"])
        shop.run(["topic", "create", "orders", "--queues", "4"], "")
        shop.python("tables.py")
        written = {"1"}
        # The table of ids exists before a process of carts dies.
        with shop.started("carts.py"):
            shop.python("orders.py", "1", "anna")
            until(lambda: shop.consumed() == 1, "the first order is taken")
            if not only_carts:
                written |= orders_killed(shop)
        if only_carts:
            written |= carts_killed(shop)
        until(lambda: shop.consumed() == len(written), "all orders are taken")
        assert {row[0] for row in shop.rows("orders.db", "SELECT id FROM orders")} == written
        assert shop.python("compare.py").splitlines()[-1] == "agree"


def orders_killed(shop: Shop) -> set[str]:
    """Kill the order service at each step; returns the orders that are written."""
    for number, step in enumerate([BEFORE_THE_ORDER, IN_THE_ORDER, AFTER_THE_ORDER], 2):
        shop.killed(DYING_ORDERS.format(step=step), str(number), "ben")
    with shop.started("orders.py"):
        # The broker has checked all three, and the answers about two of them are written down.
        until(lambda: len(shop.rows("orders.db", "SELECT id FROM transactions")) == 4, "the broker has asked")
        answers = shop.rows("orders.db", "SELECT is_written FROM transactions ORDER BY is_written")
        assert answers == [(0,), (0,), (1,), (1,)]
        until(lambda: shop.consumed() == 2, "the written order is delivered")
    return {"4"}


def carts_killed(shop: Shop) -> set[str]:
    """Kill the cart service at each step; returns the orders that are written."""
    orders = set()
    for number, step in enumerate([BEFORE_THE_ID, BEFORE_THE_COMMIT, AFTER_THE_COMMIT], 2):
        before = shop.consumed()
        shop.python("orders.py", str(number), "ben")
        orders.add(str(number))
        shop.killed(DYING_CARTS.format(step=step))
        assert shop.consumed() == before + (step is AFTER_THE_COMMIT)
    with shop.started("carts.py"):
        until(lambda: shop.consumed() == 4, "all orders are taken")
    return orders
