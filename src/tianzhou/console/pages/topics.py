"""Topics: the list, and how to make one."""

from __future__ import annotations

from nicegui import ui

from tianzhou.console.layout import View, page, table


@page("/topics", "page.topics", "topic")
async def show(view: View) -> None:
    """Fill the page."""
    now = view.console.watcher.now
    found = table(
        [("topic", view.text("topic"))],
        [{"topic": name} for name in now.topics],
        key="topic",
        links={"topic": "/topics/{value}"},
        filter_text=view.text("filter"),
        kept_for=view,
    )

    def choose(all_of_them: bool) -> None:
        now = view.console.watcher.now
        names = now.topics + now.system_topics if all_of_them else now.topics
        found.rows = [{"topic": name} for name in names]

    ui.switch(view.text("system"), on_change=lambda event: choose(event.value))
    if not view.visitor.may_change:
        ui.label(view.text("viewer"))
        return
    with ui.row().classes("items-center"):
        name = ui.input(view.text("topic")).props("dense outlined")
        queues = ui.number(view.text("queues"), value=8, min=1, max=65_535, precision=0).props("dense outlined")

        async def create() -> None:
            topic = name.value.strip()
            outcome = await view.act(
                "create topic",
                topic,
                lambda: view.console.admin.topics.create(
                    topic, read_queue_nums=int(queues.value or 8), write_queue_nums=int(queues.value or 8)
                ),
                view.text("topic.created", name=topic),
            )
            if outcome.done:
                await view.console.watcher.look()
                choose(False)

        ui.button(view.text("create"), on_click=create)
