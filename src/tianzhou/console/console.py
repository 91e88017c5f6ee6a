"""One console: the state that its pages share."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import time

from tianzhou.admin import Admin
from tianzhou.console import accounts, audit
from tianzhou.console.actions import Actions
from tianzhou.console.display.zones import machine_zone
from tianzhou.console.door import host_name, is_named_here
from tianzhou.console.proofs import Proofs
from tianzhou.console.serving.waiting_pages import WaitingPages
from tianzhou.console.sessions import LoginTries, Sessions, Visitor
from tianzhou.console.settings import ConsoleSettings
from tianzhou.console.snapshot import ANSWER_WITHIN_MS, Watcher
from tianzhou.console.sql import Queries
from tianzhou.errors import ConfigError
from tianzhou.remoting.gates.locality import is_loopback


class Console:
    """The shared state of the console's pages.

    Args:
        settings: settings of the console.
        admin: administration client; the only part of the console that sends requests to the cluster.

    Attributes:
        settings: settings of the console.
        admin: administration client of the cluster.
        watcher: periodically read state of the cluster.
        actions: executor of changes.
        queries: SQL over messages.
        sessions: sessions of logged-in visitors.
        tries: counters of wrong passwords.
        waiting_pages: pages whose browser has not opened the web socket yet.
        audit_log: log of changes.
        proofs: executor of proofs of the cluster.
        needs_login: whether all visitors have to log in.
        zone_name: name of this machine's time zone, for visitors whose browser has not sent its own yet.
    """

    def __init__(self, settings: ConsoleSettings, admin: Admin) -> None:
        self.settings = settings
        self.admin = admin
        quick = Admin(instance=admin.instance, timeout_ms=ANSWER_WITHIN_MS)
        self.watcher = Watcher(admin, settings.refresh_s, quick)
        self.queries = Queries(admin, settings.archive)
        self.sessions = Sessions(settings.idle_minutes * 60, settings.session_hours * 3600, secrets.token_urlsafe)
        self.tries = LoginTries()
        self.waiting_pages = WaitingPages()
        self.audit_log = audit.AuditLog(settings.data / audit.FILE_NAME)
        self.actions = Actions(self.audit_log, self.is_open, lambda: dt.datetime.now().astimezone())
        self.proofs = Proofs(admin, settings.namesrv_addr, settings.tls)
        self.needs_login = settings.login or not is_loopback(settings.host)
        self.zone_name = machine_zone(os.environ.get("TZ", ""), os.path.realpath("/etc/localtime"))
        self._accounts_at = 0
        self._known: accounts.Accounts = {}
        self._everybody = Visitor("", accounts.ConsoleRole.ADMIN, form_token=secrets.token_urlsafe())

    @property
    def accounts(self) -> accounts.Accounts:
        """The accounts that may log in, read from the file.

        Raises:
            ConfigError: the file cannot be read.
        """
        return accounts.load_accounts(self.settings.data / accounts.FILE_NAME)

    def visitor(self, token: str, used: bool) -> Visitor | None:
        """Return the visitor with a session token; None without a session. Without log-in, all visitors are the same.

        Args:
            token: token of the session.
            used: whether the visitor acts now (`Sessions.find`).

        Raises:
            ConfigError: the accounts cannot be read.
        """
        if not self.needs_login:
            return self._everybody
        self._end_sessions_of_changed()
        return self.sessions.find(token, time.monotonic(), used=used)

    def _end_sessions_of_changed(self) -> None:
        """End the sessions of accounts that were deleted, or whose role or password changed."""
        try:
            at = (self.settings.data / accounts.FILE_NAME).stat().st_mtime_ns
        except FileNotFoundError:
            at = 0
        if at == self._accounts_at:
            return
        before, self._known = self._known, self.accounts
        self._accounts_at = at
        for name, account in before.items():
            if self._known.get(name) != account:
                self.sessions.end_all_of(name)

    def is_open(self, visitor: Visitor) -> bool:
        """Whether a visitor's session is still open. It is closed when the accounts cannot be read."""
        if visitor is self._everybody:
            return True
        try:
            self._end_sessions_of_changed()
        except ConfigError:
            return False
        return self.sessions.is_open(visitor, time.monotonic())

    def is_named(self, host: str) -> bool:
        """Whether a Host header names this console."""
        return is_named_here(host_name(host), self.settings.host_names)
