"""Requests as access control sees them, identities of their senders, and refusals."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from tianzhou.errors import BrokerError


class AccessRequest(msgspec.Struct, frozen=True, gc=False):
    """What access control looks at.

    Attributes:
        code: request code.
        fields: header fields as text by wire name, those of the signature included.
        body: the body as it was sent.
        version: the sender's version ordinal (wire.md §1.6).
        ip: the peer's address, without its port.
        account: the account of the certificate the peer has shown; with one no signature is needed. One that is there
            goes before it.
        signed: what a signature is over but for the body, where that is known; empty takes it from the fields.
        decoded: what the body says, where it has been read already.
    """

    code: int
    fields: Mapping[str, str]
    body: bytes | memoryview = b""
    version: int = 0
    ip: str = ""
    account: str = ""
    signed: bytes = b""
    decoded: Any = None


class RequestProof(enum.Enum):
    """Proof that a request is of its account."""

    NONE = enum.auto()
    """The rules ask for nothing: the peer is in the global white list, or the code needs no signature."""
    ADDRESS = enum.auto()
    """The peer's address is in the white list of the account that the request names."""
    SIGNATURE = enum.auto()
    """The request is signed with the secret of the account."""
    CERTIFICATE = enum.auto()
    """The connection's certificate names the account."""


class Identity(NamedTuple):
    """Sender of a request.

    Attributes:
        account: name of the account; empty with `RequestProof.NONE`.
        proof: proof of the account.
    """

    account: str
    proof: RequestProof


NOBODY = Identity("", RequestProof.NONE)
"""A peer that need not name an account."""


class AccessDenied(BrokerError):
    """A request was refused by access control; `remark` says who may not do what."""


class AccessRules(Protocol):
    """Rules of one kind: accounts of RocketMQ 4.x, or users and policies of 5.3."""

    @property
    def epoch(self) -> object:
        """Object that is another one as soon as anything about the rules has changed."""

    def secret_of(self, account: str) -> str | None:
        """Secret that an account signs with; None when there is no such account."""

    def identify(self, request: AccessRequest) -> Identity:
        """Return the sender of a request, regardless of permissions. The body is not read.

        Raises:
            AccessDenied: nobody the rules know has signed the request.
        """

    def may(self, identity: Identity, request: AccessRequest, *, part_of: int = 0) -> bool:
        """Whether the sender of one request may make another one, which is not signed itself.

        A handler asks this for a topic that it learns from the message and not from the request: when a message is
        sent back, a transaction ends, or a message is viewed by its offset.

        Args:
            identity: sender of the first request, as `identify` has returned it.
            request: the other one; of its fields the topic counts, and the address.
            part_of: request code of the first one; 0 for a question that the server asks by itself.
        """

    def check(self, request: AccessRequest) -> str:
        """Account of a request that is allowed; empty where nobody has to say it.

        Raises:
            AccessDenied: it is not, with the response code and the text of RocketMQ.
        """

    def check_parts(self, request: AccessRequest, parts: Iterable[AccessRequest]) -> Iterator[None]:
        """As `check`, yielding after each part of a request that names thousands.

        Args:
            request: as it was sent; who has signed it is looked at once.
            parts: requests that together need what it needs.

        Raises:
            AccessDenied: as `check`.
        """
