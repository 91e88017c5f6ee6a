"""Confirmations before messages are sent again: their number, and the receiving groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui

from tianzhou.console.layout import View, agreed, answer_of, table
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt
from tianzhou.model.dead_letters import origin_topic

MAX_NAMED: Final = 20
"""Maximum number of groups named in a confirmation."""


@dataclass(frozen=True, slots=True)
class ResendPreview:
    """The effect of sending dead letters again.

    Attributes:
        count: number of dead letters to send.
        nameless: number of dead letters that cannot be sent to their group, because their original topic is unknown.
        topics: number of dead letters by original topic; the empty name counts those without one.
    """

    count: int
    nameless: int
    topics: dict[str, int]


def resend_preview(letters: Iterable[MessageExt], to: str) -> ResendPreview:
    """Return the effect of sending dead letters again.

    Args:
        letters: the dead letters.
        to: the topic to send to; empty to send to the letters' group only.
    """
    topics = Counter(origin_topic(one.properties) for one in letters)
    nameless = 0 if to else topics[""]
    return ResendPreview(topics.total() - nameless, nameless, {name: count for name, count in topics.items() if count})


def sendable(letters: Iterable[MessageExt], to: str) -> list[MessageExt]:
    """Return the dead letters that can be sent: all for a topic, those with an original topic for their group."""
    return [one for one in letters if to or origin_topic(one.properties)]


def topic_rows(preview: ResendPreview) -> list[dict[str, Any]]:
    """Return the rows of the preview: dead letters by their original topic, the highest number first."""
    found = sorted(preview.topics.items(), key=lambda one: (-one[1], one[0]))
    return [{"topic": name or "-", "count": count} for name, count in found]


def named_groups(groups: list[str]) -> str:
    """Return the names of groups, separated by commas; an ellipsis replaces those after the first `MAX_NAMED`."""
    return ", ".join(groups[:MAX_NAMED]) + (", …" if len(groups) > MAX_NAMED else "")


async def resend_agreed(view: View, letters: list[MessageExt], group: str, to: str, total: int) -> bool:
    """Show the dead letters to send and the receiving groups, and return whether the visitor agrees.

    Args:
        view: view of the visitor.
        letters: the dead letters.
        group: the group of the dead letters.
        to: the topic to send to; empty to send to the group only.
        total: number of dead letters of the group when all are to be sent. The visitor then types the name of the group
            or the topic, because sent messages cannot be taken back. 0 for a selection.
    """
    if (receivers := await _groups_of(view, to) if to else []) is None:
        return False
    preview = resend_preview(letters, to)
    name = to or group
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 40rem"):
        key = "resend.ask.some" if total > len(letters) else "resend.ask"
        question = view.text(key, count=f"{len(letters):,}", group=group, total=f"{total:,}")
        ui.label(question).classes("text-lg").props('role="heading" aria-level="2"')
        if not to:
            ui.label(view.text("resend.group", group=group))
        else:
            ui.label(receivers_text(view.text, to, receivers))
        if preview.nameless:
            ui.label(view.text("resend.nameless", count=f"{preview.nameless:,}")).classes("text-negative")
        table(
            [("topic", view.text("dead.topic")), ("count", view.text("resend.count"))], topic_rows(preview), key="topic"
        )
        typed = None
        if total:
            ui.label(view.text("confirm", name=name))
            typed = ui.input().props("outlined dense autofocus")
        with ui.row().classes("w-full justify-end"):
            ui.button(view.text("cancel"), on_click=lambda: dialog.submit(False)).props("flat")
            button = ui.button(view.text("resend.verb"), on_click=lambda: dialog.submit(True)).props("color=negative")
            if typed is not None:
                button.bind_enabled_from(typed, "value", lambda value: value == name)
            button.set_visibility(bool(preview.count))
    return bool(await answer_of(dialog))


async def message_agreed(view: View, message: MessageExt, to: str) -> bool:
    """Show the groups that will receive a message again, and return whether the visitor agrees.

    Args:
        view: view of the visitor.
        message: the message.
        to: the topic to send to.
    """
    if (receivers := await _groups_of(view, to)) is None:
        return False
    question = f"{view.text('resend.message', id=message.msg_id)} {receivers_text(view.text, to, receivers)}"
    return await agreed(view, question, view.text("resend.verb"))


def receivers_text(text: Callable[..., str], topic: str, groups: list[str]) -> str:
    """Return a sentence with the groups that receive messages of a topic.

    Args:
        text: text of a key in the visitor's language (`View.text`).
        topic: the topic.
        groups: groups that have consumed the topic.
    """
    if groups:
        return text("resend.topic", topic=topic, groups=named_groups(groups))
    return text("resend.topic.nobody", topic=topic)


async def _groups_of(view: View, topic: str) -> list[str] | None:
    """Return the groups that have consumed a topic. Notify the visitor and return None when no broker answers."""
    try:
        return await view.console.admin.topics.groups(topic)
    except (TianzhouError, OSError) as error:
        ui.notify(view.failure(error), type="negative", multi_line=True, timeout=0, close_button=True)
        return None
