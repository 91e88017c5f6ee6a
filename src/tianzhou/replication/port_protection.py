"""Access rules of a port between brokers, and how a broker connects to the ports of others (docs/adr/0017)."""

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
"""The request whose permission a slave's account needs: a copier of the log needs the rights of a group's member."""


@dataclass(frozen=True)
class PortProtection:
    """The protection of the HA port and of the port of a group's members.

    Attributes:
        allowed: addresses from which others may connect.
        tls: which connections use TLS, and with which certificate; None accepts connections without TLS only.
        context: TLS context for connections to the others; None connects without TLS.
        access: checks the account of a request; None allows all.
        hooks: sign this broker's requests to the others, where the protocol has a place for a signature.
    """

    allowed: AllowedAddresses = EVERYBODY
    tls: ServerTls | None = None
    context: ssl.SSLContext | None = None
    access: AccessGate | None = None
    hooks: Sequence[RpcHook] = ()

    def check_slave(self, ip: str, certificate: Mapping[str, Any] | None) -> None:
        """Raise when a slave may not copy the log.

        HA has no place for a signature, so the slave's certificate names its account.

        With access control and `tls.server.accountFrom` that account must be an administrator's, or one that may change
        the cluster. A slave without a certificate is served only where addresses are listed.

        Args:
            ip: the slave's address; `allowed` has accepted it.
            certificate: its verified certificate, as `getpeercert` describes it; None or empty without one.

        Raises:
            ProtocolError: the slave may not copy; the text has the remedy.
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
"""No protection: connections without TLS from all addresses."""
