"""Proof: sends a bounded load, and compares acknowledged, stored and consumed messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from tianzhou.bench.proof.run import ProofOutcome
from tianzhou.console.layout import View, keep_in_address, live, page, section, table
from tianzhou.console.proofs import MOST_BYTES, MOST_MESSAGES, ProofRun
from tianzhou.escaping import shown

REFRESH_S = 0.5
MOST_LISTED = 20
"""Maximum number of messages listed for each kind of violation."""


def figures(outcome: ProofOutcome) -> list[tuple[str, int]]:
    """Return the three numbers that must be equal, with the keys of their texts."""
    verdict = outcome.verdict
    return [
        ("proof.acked", verdict.acknowledged),
        ("proof.stored", verdict.on_majority),
        ("proof.consumed", verdict.consumed),
    ]


def replica_rows(outcome: ProofOutcome) -> list[dict[str, Any]]:
    """Return the rows of the table of replicas."""
    return [
        {
            "broker": one.broker,
            "address": one.address,
            "messages": one.messages,
            "state": "" if one.whole else one.why or "?",
        }
        for one in outcome.readings
    ]


def complaints(outcome: ProofOutcome) -> list[tuple[str, int, list[str]]]:
    """Return the violations: key of the text, number, and some messages."""
    verdict = outcome.verdict
    found: list[tuple[str, list[Any]]] = [
        ("proof.lost", list(verdict.lost)),
        ("proof.unproven", list(verdict.unproven)),
        ("proof.not.consumed", list(verdict.not_consumed)),
        ("proof.differing", list(verdict.differing)),
        ("proof.stored.twice", list(verdict.stored_twice)),
        ("proof.consumed.twice", list(verdict.consumed_twice)),
        ("proof.failures", [f"{text} ({times})" for text, times in outcome.failures.most_common()]),
    ]
    return [(key, len(some), [shown(str(one)) for one in some[:MOST_LISTED]]) for key, some in found if some]


@page("/proof", "page.proof", "verified")
async def show(view: View) -> None:
    """Show the page."""
    ui.label(view.text("proof.means"))
    proofs = view.console.proofs
    if view.visitor.may_change:
        with section(view.text("proof.run")):
            _form(view)
    else:
        ui.label(view.text("viewer"))
    place = ui.column().classes("w-full gap-4")
    drawn: list[tuple[Any, ...]] = []
    progress: list[Callable[[], None]] = []

    def refresh() -> None:
        run = proofs.last
        now = (id(run), run.over) if run is not None else ()
        if drawn != [now]:
            drawn[:] = [now]
            place.clear()
            with place:
                progress[:] = [_run(view, run)] if run is not None else []
        for update in progress:
            update()

    refresh()
    live(view, refresh, REFRESH_S)


def _form(view: View) -> None:
    with ui.row().classes("items-start w-full"):
        topic = ui.input(view.text("proof.topic"), value=view.query.get("topic", "")).props("outlined dense")
        topic.classes("w-full sm:w-80").props(f'hint="{view.text("proof.topic.hint")}"')
        count = ui.number(view.text("proof.count"), value=1_000, min=1, max=MOST_MESSAGES, precision=0)
        size = ui.number(view.text("proof.size"), value=256, min=1, max=MOST_BYTES, precision=0)
        for one in (count, size):
            one.props("outlined dense").classes("w-40")

        async def run() -> None:
            name = topic.value.strip()
            keep_in_address(view, topic=name)
            messages, size_bytes = int(count.value or 0), int(size.value or 0)
            subject = f"{messages} messages of {size_bytes} bytes to {name or 'a topic of its own'}"
            button.disable()
            try:
                await view.act("prove", subject, lambda: view.console.proofs.start(name, messages, size_bytes))
            finally:
                button.enable()

        button = ui.button(view.text("proof.run"), icon="verified", on_click=run)


def _run(view: View, run: ProofRun) -> Callable[[], None]:
    """Draw a proof, and return a function that updates its progress.

    The function updates the same elements, because a click on a recreated button would be lost.
    """
    with section(view.text("proof.of", topic=run.topic)):
        if run.outcome is not None:
            _outcome(view, run.outcome)
        elif run.over:
            ui.label(view.failure(run.error)).classes("text-negative").props("role=alert")
        else:
            return _progress(view, run)
    return lambda: None


def _progress(view: View, run: ProofRun) -> Callable[[], None]:
    bar = ui.linear_progress(0, show_value=False).props("instant-feedback")
    count = ui.label().props("role=status")
    said = ui.label().classes("text-grey")

    def update() -> None:
        bar.value = run.acknowledged / run.count
        count.text = f"{run.acknowledged:,} / {run.count:,}"
        said.text = view.failure(run.said) if run.said else ""

    if view.visitor.may_change:

        async def cancel() -> None:
            async def end() -> None:
                view.console.proofs.cancel()

            # The visitor who started the proof is notified of its outcome.
            await view.act("cancel proof", run.topic, end, done=None)

        ui.button(view.text("cancel"), on_click=cancel).props("outline")
    return update


def _outcome(view: View, outcome: ProofOutcome) -> None:
    proven = outcome.verdict.proven
    with ui.row().classes("items-center"):
        ui.icon("check_circle" if proven else "error", color="positive" if proven else "negative").classes("text-3xl")
        ui.label(view.text("proof.proven" if proven else "proof.not.proven")).classes("text-lg").props("role=status")
    with ui.row().classes("items-stretch w-full gap-4"):
        for number, (key, value) in enumerate(figures(outcome)):
            if number:
                ui.label("=" if proven else "?").classes("text-2xl self-center gt-xs")
            with ui.card().classes("grow"):
                ui.label(f"{value:,}").classes("text-2xl")
                ui.label(view.text(key)).classes("text-grey")
    names = ("broker", "address", "messages", "state")
    table([(name, view.text(f"proof.{name}")) for name in names], replica_rows(outcome), key="address")
    for key, count, some in complaints(outcome):
        ui.label(f"{view.text(key)}: {count}").classes("text-negative")
        for one in some:
            ui.label(one).classes("text-sm break-all")
    for note in outcome.notes:
        ui.label(view.failure(note)).classes("text-grey text-sm")
