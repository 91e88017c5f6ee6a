"""The toolkit's pages within the limits of `WaitingPages`."""

from __future__ import annotations

from nicegui import Client

from tianzhou.console.serving.waiting_pages import WaitingPages


def bound_waiting(pages: WaitingPages, client: Client, session: str) -> None:
    """Count a new page as waiting until its browser opens its web socket. Delete the oldest pages above the limits.

    Args:
        pages: the waiting pages.
        client: the new page.
        session: key of its session.
    """
    page = client.id
    client.on_connect(lambda: pages.remove(page))
    client.on_delete(lambda: pages.remove(page))
    for one in pages.add(page, session):
        if (old := Client.instances.get(one)) is not None:
            old.delete()
