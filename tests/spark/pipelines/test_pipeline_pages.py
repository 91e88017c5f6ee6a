"""The commands of docs/howto/pipelines run as printed, with a server that has their topics."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tianzhou.client import Producer, PushConsumer
from tianzhou.model import ConsumeFromWhere, ConsumeResult, Message

PAGES = Path(__file__).resolve().parents[3] / "docs" / "howto" / "pipelines"
ELSEWHERE = {
    "cdc.md": "needs MariaDB: test_pipeline_cdc_truth.py",
    "declarative.md": "needs spark-pipelines: test_pipeline_declarative.py",
}
Steps = list[tuple[str, str]]


def steps_of(page: Path) -> Steps:
    """Return the commands of a page, each with its printed output."""
    found: Steps = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command, shown))
    return found


def labels(text: str) -> list[str]:
    """Return the first words of the lines of a text with fields or tables, or the table heads; rows are data."""
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    table = re.compile(r"^(topic|id) {2,}")
    return [re.split(r" {2,}", line)[0] for block in blocks for line in (block[:1] if table.match(block[0]) else block)]


@pytest.fixture
def page_server(own_server, tmp_path, monkeypatch) -> Iterator:
    """Yield a server without topics; its folder is the working directory of the commands."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NAMESRV_ADDR", own_server.address)
    return own_server


@pytest.fixture
def printed(spark, page_server, monkeypatch, capsys):
    """Run a printed command; return its stdout."""
    from tianzhou.cli import main

    def run(command: str) -> str:
        words = shlex.split(command)
        assert words[0] == "tianzhou"
        # The session of all tests has another working directory.
        folders = ("--checkpoint", "--to") if words[2] == "archive" else ("--checkpoint",)
        words = [
            str(Path.cwd() / word) if before in folders else word
            for before, word in zip(["", *words[:-1]], words, strict=True)
        ]
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main.main()
        said = capsys.readouterr()
        assert not ended.value.code, f"{command}: {said.err}"
        return said.out

    return run


def orders(server) -> None:
    server.create("orders", queues=4)
    server.send("orders", range(40), keys=lambda n: f"order-{n % 30}", tags="created")


def payments(server) -> None:
    server.create("payments", queues=4)
    bodies = [json.dumps({"status": "ok" if n % 5 else "no", "merchant": f"m{n % 2}", "order": n}) for n in range(40)]
    server.send("payments", bodies[:20])
    # A window lasts five seconds. These messages are later than its end and its allowed lateness.
    server.broker_clock.ahead_ms += 7000
    server.send("payments", bodies[20:])


def outcomes(server) -> None:
    for topic in ("orders", "payments"):
        server.create(topic, queues=4)
    server.send("orders", [json.dumps({"order": str(n)}) for n in range(5)])
    server.send("payments", [json.dumps({"order": str(n)}) for n in (0, 1, 3)])
    # An order times out when a message is later than the order by three seconds and one.
    server.broker_clock.ahead_ms += 5000
    server.send("orders", [json.dumps({"order": "5"})])


def traced(server) -> None:
    server.create("orders-again")

    async def work() -> None:
        seen = asyncio.Event()
        consumer = PushConsumer(
            "shipping", server.address, trace=True, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )

        @consumer.on("orders-again")
        async def ship(_message):
            seen.set()

        async with Producer("shop", server.address, trace=True) as producer, consumer:
            await producer.send(Message("orders-again", b"1"))
            await asyncio.wait_for(seen.wait(), 30)

    server.run(work())


def dead_letters(server) -> None:
    server.create("payments")
    server.send("payments", [b"x"] * 20, keys=lambda n: f"order-{n}", tags="paid", properties={"reason": "Timeout"})

    async def work() -> None:
        consumer = PushConsumer(
            "billing",
            server.address,
            max_reconsume_times=0,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )

        @consumer.on("payments")
        async def refuse(_message):
            return ConsumeResult.RECONSUME_LATER

        async with consumer:
            for _ in range(300):
                names = await server.admin.topics.names()
                letters = "%DLQ%billing"
                if letters in names and (await server.admin.topics.describe(letters)).message_count >= 20:
                    return
                await asyncio.sleep(0.1)
        raise AssertionError("there are no dead letters")

    server.run(work())


def logs(_server) -> None:
    Path("log").mkdir()
    Path("log/app.log").write_text("".join(f"2026-11-21 08:00:00 INFO order {n} paid\n" for n in range(40)))


MADE = {
    "archive.md": orders,
    "deduplicate.md": orders,
    "dlq.md": dead_letters,
    "logs.md": logs,
    "rates.md": payments,
    "replay.md": orders,
    "timeouts.md": outcomes,
    "trace.md": traced,
}


def test_every_page_is_run():
    with_commands = {page.name for page in PAGES.glob("*.md") if steps_of(page)}
    assert with_commands == MADE.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("name", MADE)
def test_a_page_runs_as_printed(printed, page_server, name):
    MADE[name](page_server)
    places = {"2026-11-21T20:55:53": "2026-01-01T00:00:00", "7F0000017904ADC47BF86BB166D9000B": ""}
    if name == "replay.md":
        places["7F0000017904ADC47BF86BB166D9000B"] = page_server.messages("orders")[0].msg_id
    for command, shown in steps_of(PAGES / name):
        for old, new in places.items():
            command = command.replace(old, new)
        said = printed(command)
        if command.startswith("tianzhou pipeline"):
            said = said.replace(f"{Path.cwd()}/", "")
            assert labels(said) == labels(re.sub(r"^\d+ messages? .*\n", "", shown, flags=re.MULTILINE)), command
        else:
            assert len(said.splitlines()) >= len([line for line in shown.splitlines() if "messages" not in line[:12]])


def test_the_recipe_of_tags_runs_as_printed(printed, page_server):
    for command, shown in steps_of(PAGES.parent / "recipes" / "success-rate-by-tags.md"):
        if "order-10" in command:
            page_server.broker_clock.ahead_ms += 7000  # a window lasts five seconds, and lateness one
        said = printed(command)
        if command.startswith("tianzhou pipeline"):
            assert labels(said) == labels(shown)
            assert re.search(r"^read +21$", said, re.MULTILINE), "18 paid, 2 failed, and one that moves the time on"
    windows = [json.loads(message.body) for message in page_server.messages("payment-rates")]
    assert (sum(one["messages"] for one in windows), sum(one["succeeded"] for one in windows)) == (20, 18)


def test_the_topic_of_database_changes_is_made_too(server, topic, cli, tmp_path):
    """Then only the database is missing, which the tests of pages do not have."""
    target = f"{topic}-cdc"
    args = ["repl@127.0.0.1:1", "--table", "shop.orders", "--to", target, "--checkpoint", str(tmp_path / "cdc")]
    code, _, err = cli("pipeline", "cdc", *args)
    assert code
    assert f"topic {target} made, with 4 queues on each broker" in err
    assert "does not exist" not in err
    assert len(server.maxima(target)) == 4
