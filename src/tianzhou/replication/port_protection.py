"""Who may speak at a port between brokers, and how a broker speaks at those of others (docs/adr/0017)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.access.requests import AccessDenied
from tianzhou.errors import ProtocolError
from tianzhou.remoting.client import RpcHook
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.tls import ServerTls
from tianzhou.replication.allowed_addresses import EVERYBODY, KEY, AllowedAddresses
from tianzhou.wire.codes import DLedgerRequestCode

_AS_SLAVE: Final = DLedgerRequestCode.PULL
"""The request whose needs a slave's account has to meet: who copies the log may do what members of a group may."""


@dataclass(frozen=True)
class PortProtection:
    """What protects the HA port and the port of a group's members.

    Attributes:
        allowed: from where others may come.
        tls: which connections speak TLS, and with which certificate; None speaks plain only.
        context: what this broker speaks TLS to the others with; None has it speak plain.
        access: decides whose account may; None lets all.
        hooks: sign what this broker says to the others, where there is a place for a signature.
    """

    allowed: AllowedAddresses = EVERYBODY
    tls: ServerTls | None = None
    context: ssl.SSLContext | None = None
    access: AccessGate | None = None
    hooks: Sequence[RpcHook] = ()

    def check_slave(self, ip: str, certificate: Mapping[str, Any] | None) -> None:
        """Return when a slave may copy the log: HA has no place for a signature, so its certificate is its account.

        With access control and `tls.server.accountFrom` that account has to be an administrator's, or one that may
        change the cluster. One without a certificate is served only where addresses are listed.

        Args:
            ip: where it connects from; `allowed` has let it in.
            certificate: its verified certificate, as `getpeercert` describes it; None or empty without one.

        Raises:
            ProtocolError: it may not; says what to do.
        """
        account_of = None if self.tls is None else self.tls.account_of
        if self.access is None or account_of is None:
            return
        if not certificate:
            if self.allowed.lists_any:
                return
            raise ProtocolError(
                "it shows no certificate, which tls.server.accountFrom takes its account from; have it connect by TLS"
                f" (tls.enable, tls.client.certPath), or list its address in {KEY}"
            )
        account = account_of(certificate)
        try:
            self.access.check_account(_AS_SLAVE, ip, account)
        except AccessDenied as error:
            raise ProtocolError(
                f"the account of its certificate, {account!a}, may not copy the log ({error.remark}); make it an"
                " administrator, or let it update the cluster"
            ) from error


UNPROTECTED: Final = PortProtection()
"""Plain connections of everybody."""
