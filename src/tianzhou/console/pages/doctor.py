"""The doctor: faults of the cluster, a group, a topic or a broker, with evidence and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from nicegui import ui

from tianzhou.console.layout import View, keep_in_address, page
from tianzhou.doctor import Finding, Report, Severity, diagnose
from tianzhou.doctor.chinese import looked_at_in_chinese, report_in_chinese, subject_in_chinese
from tianzhou.errors import TianzhouError

SUBJECTS: Final = ("cluster", "group", "topic", "broker", "send", "access")
_PAGES: Final = {"group": "/groups/", "topic": "/topics/", "broker": "/brokers/"}
_COLORS: Final = {Severity.error: "negative", Severity.warning: "warning", Severity.note: "primary"}
MOST_EVIDENCE: Final = 600
"""Maximum number of characters shown of one evidence value."""
MOST_FINDINGS: Final = 100


def subject_of(query: Mapping[str, str]) -> tuple[str, str]:
    """Return the subject that an address names, and its name.

    Args:
        query: parameters of the address: `group=billing`, or `subject=access`.
    """
    for kind in ("group", "topic", "broker"):
        if name := query.get(kind, ""):
            return kind, name
    asked = query.get("subject", "")
    return (asked, query.get("name", "")) if asked in SUBJECTS else ("cluster", "")


def link_of(subject: str) -> str:
    """Return the address of the page about a finding's subject, such as `group billing`; empty when there is none."""
    kind, _, rest = subject.partition(" ")
    name = re.split(r"[\s(,]", rest.strip(), maxsplit=1)[0]
    return _PAGES[kind] + quote(name, safe="") if kind in _PAGES and name else ""


def evidence_rows(finding: Finding) -> list[tuple[str, str]]:
    """Return evidence as names and shortened texts."""
    rows: list[tuple[str, str]] = []
    for name, value in finding.evidence.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        rows.append((name, text if len(text) <= MOST_EVIDENCE else f"{text[:MOST_EVIDENCE]}…"))
    return rows


@page("/doctor", "page.doctor", "medical_services")
async def show(view: View) -> None:
    """Show the page. The diagnosis is shown when it is complete."""
    kind, name = subject_of(view.query)
    with ui.row().classes("items-center w-full"):
        options = {one: view.text(f"doctor.{one}") for one in SUBJECTS}
        subject = ui.select(options, value=kind, label=view.text("doctor.subject")).props("outlined dense")
        subject.classes("w-56")
        field = ui.input(view.text("doctor.name"), value=name).props("outlined dense").classes("w-64")
        field.bind_visibility_from(subject, "value", lambda now: now not in ("cluster", "access"))
        button = ui.button(view.text("doctor.ask"), icon="medical_services")
    place = ui.column().classes("w-full gap-4")

    async def ask() -> None:
        chosen = str(subject.value)
        about = (field.value or "").strip() if chosen not in ("cluster", "access") else ""
        plain = dict.fromkeys(("group", "topic", "broker", "subject", "name"), "")
        named = {chosen: about} if chosen in _PAGES and about else {"subject": chosen, "name": about}
        keep_in_address(view, **{**plain, **named})
        place.clear()
        button.disable()
        with place, ui.row().classes("items-center"):
            ui.spinner()
            ui.label(view.text("doctor.looking")).props("role=status")
        try:
            report = await diagnose(view.console.admin, chosen, about or None)
        except (TianzhouError, OSError) as error:
            place.clear()
            with place:
                ui.label(view.failure(error)).classes("text-negative").props("role=alert")
            return
        finally:
            button.enable()
        place.clear()
        with place:
            _report(view, report)

    button.on_click(ask)
    field.on("keydown.enter", ask)
    ui.timer(0.01, ask, once=True)


def _report(view: View, report: Report) -> None:
    chinese = view.language == "zh"
    report = report_in_chinese(report) if chinese else report
    counts = report.counts()
    with ui.row().classes("items-center gap-4").props("role=status"):
        if report.healthy and not counts[Severity.warning]:
            ui.icon("check_circle", color="positive").classes("text-2xl")
            ui.label(view.text("doctor.healthy"))
        for severity, number in counts.items():
            if number:
                ui.badge(f"{view.text(f'doctor.{severity}')}: {number}", color=_COLORS[Severity(severity)])
        names = {what: looked_at_in_chinese(what) if chinese else what for what in report.looked_at}
        looked = ", ".join(f"{names[what]}: {number}" for what, number in report.looked_at.items() if number)
        ui.label(view.text("doctor.looked", what=looked or "0")).classes("text-grey")
    for finding in report.findings[:MOST_FINDINGS]:
        _finding(view, finding)
    if len(report.findings) > MOST_FINDINGS:
        ui.label(view.text("doctor.more", count=len(report.findings) - MOST_FINDINGS))
    for one in report.unanswered[:MOST_FINDINGS]:
        text = view.text("doctor.unanswered", question=one.question, server=one.server, why=one.why)
        ui.label(text).classes("text-grey text-sm")


def _finding(view: View, finding: Finding) -> None:
    with ui.card().classes("w-full gap-2"):
        with ui.row().classes("items-center w-full"):
            ui.badge(view.text(f"doctor.{finding.severity}"), color=_COLORS[finding.severity])
            ui.label(finding.name).classes("text-grey text-sm")
            subject = subject_in_chinese(finding.subject) if view.language == "zh" else finding.subject
            if link := link_of(finding.subject):
                ui.link(subject, link)
            else:
                ui.label(subject)
        ui.label(finding.message).classes("text-lg").props('role="heading" aria-level="2"')
        for name, text in evidence_rows(finding):
            with ui.row().classes("gap-2 text-sm w-full no-wrap"):
                ui.label(f"{name}:").classes("text-grey")
                ui.label(text).classes("break-all")
        ui.label(view.text("doctor.fix")).classes("text-grey text-sm")
        ui.label(finding.fix).classes("break-words whitespace-pre-wrap")
