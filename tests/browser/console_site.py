"""A console with its cluster, and a browser's page of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import Tianzhou

HEADING = "[role=heading][aria-level='1']"


@dataclass
class Site:
    """A console with its cluster.

    Attributes:
        url: of the console.
        namesrv: of the cluster.
        folder: working directory of the processes.
        server_pid: id of the process of name server and broker.
    """

    url: str
    namesrv: str
    folder: Path
    server_pid: int = 0

    def tianzhou(self, *args: object) -> Tianzhou:
        """Start another command against the cluster."""
        return Tianzhou(self.folder, *args, namesrv=self.namesrv)


@dataclass
class Browser:
    """A page of the browser, and the errors that the browser reports."""

    page: Any
    site: Site
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Any:
        """Open an address of the console, and wait for its heading."""
        self.page.goto(self.site.url + path)
        self.connects()
        return self.page

    def connects(self) -> None:
        """Wait for the page's heading, its web socket and its content: clicks and typed words are lost before."""
        self.page.wait_for_selector(HEADING)
        self.page.wait_for_function("() => window.socket && window.socket.connected")
        self.page.wait_for_selector("[data-test=loading]", state="detached")

    def arrives(self, path: str) -> None:
        """Wait until the page has an address of the console.

        The toolkit follows a link twice, at the press and at the release of Enter. The second navigation aborts the
        first one, and `wait_for_url` reports this as a failure.
        """
        self.page.wait_for_function("path => location.pathname + location.search + location.hash === path", arg=path)
        self.connects()

    @property
    def heading(self) -> str:
        return str(self.page.locator(HEADING).inner_text())
