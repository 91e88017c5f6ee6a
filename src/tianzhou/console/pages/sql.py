"""SQL over messages and the archive: one SELECT, limited in rows, bytes and time, with a button that cancels it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final
from urllib.parse import urlencode

from nicegui import ui

from tianzhou.console.layout import View, page, preformatted, section, table
from tianzhou.console.message_values import cell, number
from tianzhou.console.sql import LONGEST_SQL, MOST_EACH, MOST_ROWS, SECONDS, SqlAnswer, to_csv, to_json
from tianzhou.errors import TianzhouError
from tianzhou.supervision import start_awaited

EACH: Final = 1_000
SHOWN_ROWS: Final = 500
SHOWN_TOPICS: Final = 100
EXAMPLE: Final = """SELECT tags, count(*) AS messages, max(storeTimestamp) AS newest
FROM "{topic}"
GROUP BY tags
ORDER BY messages DESC"""
_PROXIES: Final = {ord("\0"): "\N{SYMBOL FOR NULL}"}


def result_columns(answer: SqlAnswer) -> list[tuple[str, str]]:
    """Return the columns of the table. Their position distinguishes columns with the same name."""
    return [(f"c{at}", name) for at, name in enumerate(answer.columns)]


def result_rows(answer: SqlAnswer) -> list[dict[str, Any]]:
    """Return the rows of the table, with shortened values."""
    return [
        {"key": at, **{f"c{place}": _shown(value) for place, value in enumerate(row)}}
        for at, row in enumerate(answer.rows[:SHOWN_ROWS])
    ]


def _shown(value: Any) -> Any:
    if value is None:
        return "NULL"
    if isinstance(value, dict | list):
        return cell(json.dumps(value, ensure_ascii=False))
    # JavaScript's numbers are exact only below this value.
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 53:
        return value
    return cell(str(value).translate(_PROXIES))


@page("/sql", "page.sql", "terminal")
async def show(view: View) -> None:
    """Show the page."""
    topics = view.console.watcher.now.topics
    example = EXAMPLE.format(topic=topics[0].replace('"', '""')) if topics else "SELECT 1"
    with ui.card().classes("w-full"):
        ui.label(view.text("sql.words", seconds=f"{SECONDS:g}", rows=f"{MOST_ROWS:,}", zone=view.zone.name))
        sql = ui.textarea("SQL", value=view.query.get("sql", "")[:LONGEST_SQL] or example)
        sql.props("outlined autogrow spellcheck=false").classes("w-full").style("font-family: monospace")
        with ui.row().classes("items-center"):
            each = ui.number(
                view.text("sql.each"),
                value=number(view.query.get("each", ""), EACH, MOST_EACH),
                min=1,
                max=MOST_EACH,
                precision=0,
            )
            each.props("dense outlined").classes("w-64")
            run = ui.button(view.text("sql.run"), icon="play_arrow")
            cancel = ui.button(view.text("cancel"), icon="stop").props("color=negative outline")
            cancel.set_visibility(False)
            spinner = ui.spinner(size="sm")
            spinner.set_visibility(False)
    result = ui.column().classes("w-full")
    with section(view.text("sql.tables")):
        _tables(view, topics)
    running: list[asyncio.Task[SqlAnswer]] = []

    async def answer() -> None:
        if running:
            return
        text, count = sql.value.strip(), int(each.value or EACH)
        ui.navigate.history.replace("/sql?" + urlencode({"sql": text, "each": count}))
        now = view.console.watcher.now
        work = view.console.queries.run(text, now.topics + now.system_topics, count, zone=view.zone.name)
        task = start_awaited(work)
        running.append(task)
        for part in (cancel, spinner):
            part.set_visibility(True)
        result.clear()
        try:
            found = await task
        except asyncio.CancelledError:
            with result:
                ui.label(view.text("sql.cancelled"))
        except (TianzhouError, OSError) as error:
            with result, section(view.text("sql.error")):
                preformatted(view.failure(error)[:4_000]).classes("text-negative")
        else:
            with result, section(view.text("sql.result", count=len(found.rows))):
                _result(view, found)
        finally:
            running.clear()
            for part in (cancel, spinner):
                part.set_visibility(False)

    run.on_click(answer)
    sql.on("keydown.ctrl.enter", answer)
    cancel.on_click(lambda: [task.cancel() for task in running])
    ui.context.client.on_delete(lambda: [task.cancel() for task in running])


def _tables(view: View, topics: list[str]) -> None:
    ui.label(view.text("sql.columns"))
    preformatted(
        "topic, brokerName, queueId, queueOffset, msgId, tags, keys, body, properties, bornTimestamp, storeTimestamp,"
        " bornHost, storeHost, reconsumeTimes, physicalOffset"
    )
    if view.console.settings.archive is not None:
        ui.label(view.text("sql.archive"))
    with ui.row().classes("gap-2"):
        for name in topics[:SHOWN_TOPICS]:
            ui.label(name).classes("text-sm").style("font-family: monospace")


def _result(view: View, found: SqlAnswer) -> None:
    if found.topics:
        counts = [
            f"{name}: {read}" if read >= wanted else view.text("sql.part", name=name, read=read, wanted=wanted)
            for name, (read, wanted) in found.topics.items()
        ]
        ui.label(view.text("sql.read", topics=", ".join(counts)))
    if found.cut:
        ui.label(view.text(f"sql.cut.{found.cut}")).classes("text-warning")
    table(result_columns(found), result_rows(found), key="key", filter_text=view.text("filter"))
    if len(found.rows) > SHOWN_ROWS:
        ui.label(view.text("sql.more", shown=SHOWN_ROWS, count=len(found.rows)))
    with ui.row():
        for name, write, kind in (("CSV", to_csv, "text/csv"), ("JSON", to_json, "application/json")):

            def download(name: str = name, write: Any = write, kind: str = kind) -> None:
                ui.download.content(write(found).encode(errors="replace"), f"result.{name.lower()}", kind)

            ui.button(name, icon="download", on_click=download).props("outline")
