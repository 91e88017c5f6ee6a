"""Limits of pages whose browser has not opened the web socket yet. Pure.

The toolkit stores such a page for a minute. Programs that load pages and run no script would fill the memory with them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_WAITING: Final = 128
"""Maximum number of waiting pages."""
MAX_WAITING_A_SESSION: Final = 48
"""Maximum number of waiting pages of one session, more than the tabs that a browser opens at once."""


class WaitingPages:
    """The waiting pages with the key of their session, in the order of their requests.

    Args:
        at_most: maximum number of waiting pages.
        at_most_each: maximum number of waiting pages of one session.
    """

    def __init__(self, at_most: int = MAX_WAITING, at_most_each: int = MAX_WAITING_A_SESSION) -> None:
        self._at_most = at_most
        self._at_most_each = at_most_each
        self._session_of: dict[str, str] = {}
        self._of_session: dict[str, deque[str]] = {}

    def __len__(self) -> int:
        return len(self._session_of)

    def add(self, page: str, session: str) -> list[str]:
        """Add a page, and return the pages to drop: the oldest ones above the limits.

        Args:
            page: id of the page.
            session: key of its session.
        """
        self._session_of[page] = session
        pages = self._of_session.setdefault(session, deque())
        pages.append(page)
        dropped = []
        if len(pages) > self._at_most_each:
            dropped.append(pages[0])
        elif len(self._session_of) > self._at_most:
            dropped.append(next(iter(self._session_of)))
        for one in dropped:
            self.remove(one)
        return dropped

    def remove(self, page: str) -> None:
        """Remove a page that was opened or deleted. Other pages are ignored."""
        session = self._session_of.pop(page, None)
        if session is None:
            return
        pages = self._of_session[session]
        pages.remove(page)
        if not pages:
            del self._of_session[session]
