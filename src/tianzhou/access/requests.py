"""Requests in the form that access control reads, identities of their senders, and refusals."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from tianzhou.errors import BrokerError


class AccessRequest(msgspec.Struct, frozen=True, gc=False):
    """The parts of a request that access control reads.

    Attributes:
        code: request code.
        fields: header fields as text by wire name, including those of the signature.
        body: the body as received.
        version: the sender's version ordinal (wire.md §1.6).
        ip: the peer's address, without its port.
        account: account that the peer's certificate names; the request then needs no signature. A signature takes
            precedence.
        signed: the signed content without the body, if it is known; empty computes it from the fields.
        decoded: the decoded body, if it was decoded before.
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
    """RequestProof that a request belongs to its account."""

    NONE = enum.auto()
    """The rules require no account: the peer is in the global white list, or the code needs no signature."""
    ADDRESS = enum.auto()
    """The peer's address is in the white list of the account that the request names."""
    SIGNATURE = enum.auto()
    """The request is signed with the secret of the account."""
    CERTIFICATE = enum.auto()
    """The certificate of the connection names the account."""


class Identity(NamedTuple):
    """The sender of a request.

    Attributes:
        account: name of the account; empty with `RequestProof.NONE`.
        proof: proof of the account.
    """

    account: str
    proof: RequestProof


NOBODY = Identity("", RequestProof.NONE)
"""Identity of a peer that need not name an account."""


class AccessDenied(BrokerError):
    """Refusal of a request by access control; `remark` names the account and the missing permission."""


class AccessRules(Protocol):
    """Rules of one kind: accounts of RocketMQ 4.x, or users and policies of 5.3."""

    @property
    def epoch(self) -> object:
        """An object that is replaced by another one at every change of the rules."""

    def secret_of(self, account: str) -> str | None:
        """Return the secret key of an account; None when the account does not exist."""

    def identify(self, request: AccessRequest) -> Identity:
        """Return the sender of a request, regardless of permissions. The body is not read.

        Raises:
            AccessDenied: no known account has signed the request.
        """

    def may(self, identity: Identity, request: AccessRequest, *, part_of: int = 0) -> bool:
        """Whether the sender of one request may make another request, which has no signature of its own.

        A handler asks this for a topic that it reads from the message instead of the request: when a message is sent
        back, a transaction ends, or a message is viewed by its offset.

        Args:
            identity: sender of the first request, from `identify`.
            request: the other request; only its topic and its address count.
            part_of: request code of the first request; 0 for a question of the server itself.
        """

    def check(self, request: AccessRequest) -> str:
        """Return the account of an allowed request; empty where no account is required.

        Raises:
            AccessDenied: the request is not allowed; the error has RocketMQ's response code and text.
        """

    def check_parts(self, request: AccessRequest, parts: Iterable[AccessRequest]) -> Iterator[None]:
        """Check a request that names thousands of resources, as `check` does, and yield after each part.

        Args:
            request: the received request; its signature is checked once.
            parts: requests that together need the same as `request`.

        Raises:
            AccessDenied: the request is not allowed.
        """
