"""The account that a verified certificate names. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tianzhou.errors import ProtocolError

OFF: Final = frozenset({"", "off"})
SOURCES: Final = ("off", "CN", "SAN")
"""Values of `tls.server.accountFrom`; empty is `off`."""
MOST_CHARACTERS: Final = 255
"""Maximum length of an account's name, in characters."""
_ALTERNATIVES: Final = frozenset({"URI", "DNS", "email"})


def account_of(certificate: Mapping[str, Any], source: str) -> str:
    """Return the account that a certificate names.

    Args:
        certificate: a verified certificate in the form of `ssl.SSLObject.getpeercert()`.
        source: `CN`, for the subject's only common name; or `SAN`, for the first URI, DNS name or e-mail address among
            the alternative names.

    Raises:
        ProtocolError: the certificate has no such name, several common names, or a name that is invalid for an account.
    """
    kind = source.upper()
    if kind == "CN":
        found = list(_common_names(certificate))
        if len(found) > 1:
            # Programs differ in which of several common names they use, so the account would be ambiguous.
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
