"""The account that a verified certificate stands for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tianzhou.errors import ProtocolError

OFF: Final = frozenset({"", "off"})
SOURCES: Final = ("off", "CN", "SAN")
"""Values of `tls.server.accountFrom`; empty is `off`."""
MOST_CHARACTERS: Final = 255
"""Length of an account's name."""
_ALTERNATIVES: Final = frozenset({"URI", "DNS", "email"})


def account_of(certificate: Mapping[str, Any], source: str) -> str:
    """Account that a certificate stands for.

    Args:
        certificate: verified, as `ssl.SSLObject.getpeercert()` describes it.
        source: `CN`, the one common name of the subject; or `SAN`, the first URI, DNS name or e-mail address among the
            alternative names.

    Raises:
        ProtocolError: it has no such name, several common names, or one that cannot be an account's.
    """
    kind = source.upper()
    if kind == "CN":
        found = list(_common_names(certificate))
        if len(found) > 1:
            # Which of them a reader takes for the name is a matter of taste; an account is not.
            raise ProtocolError(f"its certificate has {len(found)} common names (CN); one is needed for an account")
    else:
        found = [name for kind_of, name in certificate.get("subjectAltName", ()) if kind_of in _ALTERNATIVES]
    if not found:
        wanted = "common name (CN)" if kind == "CN" else "URI, DNS name or e-mail address among its alternative names"
        raise ProtocolError(
            f"its certificate has no {wanted}, which tls.server.accountFrom={source} takes the account from"
        )
    name = found[0]
    if not 0 < len(name) <= MOST_CHARACTERS or not name.isprintable() or name != name.strip():
        raise ProtocolError(
            f"the name in its certificate, {name[:MOST_CHARACTERS]!a}, cannot be an account's: that has 1 to"
            f" {MOST_CHARACTERS} characters, none of them a control character, and no space around it"
        )
    return name


def _common_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for relative in certificate.get("subject", ()):
        for attribute, value in relative:
            if attribute == "commonName":
                yield value
