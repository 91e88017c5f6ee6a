"""Heads of HTTP requests for a page: the small part of HTTP/1 that a page needs. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

MAX_LINES: Final = 100
REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    503: "Service Unavailable", 505: "HTTP Version Not Supported",
}  # fmt: skip


class BadRequest(Exception):
    """A request that gets an error status.

    Args:
        status: HTTP status of the response.
        why: the reason as text.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed request.

    Attributes:
        path: without its query.
        head_only: whether it is a HEAD.
        credentials: user and password of basic authentication; None without.
    """

    path: str
    head_only: bool = False
    credentials: tuple[str, str] | None = field(default=None, repr=False)


def parse_head(data: bytes) -> Request:
    """Parse the head of a request, up to and including its empty line.

    Raises:
        BadRequest: it is not a request, or requests something that is not served here.
    """
    lines = data.decode("latin-1").split("\r\n")
    if len(lines) > MAX_LINES:
        raise BadRequest(431, f"{len(lines)} lines, at most {MAX_LINES} are taken")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/"):
        raise BadRequest(400, "the first line is not that of an HTTP request; ask for GET /metrics")
    method, target, version = parts
    if not version.startswith("HTTP/1."):
        raise BadRequest(505, "HTTP/1.0 and HTTP/1.1 are spoken")
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "GET and HEAD are served")
    if not target.startswith("/"):
        raise BadRequest(400, "the target is not a path, such as /metrics")
    found: tuple[str, str] | None = None
    for line in filter(None, lines[1:]):
        name, colon, value = line.partition(":")
        if not colon or name != name.strip() or not name:
            raise BadRequest(400, "a header line is not name: value")
        if name.lower() == "authorization":
            found = _basic(value.strip())
    return Request(target.partition("?")[0], method == "HEAD", found)


def _basic(value: str) -> tuple[str, str] | None:
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


def response_head(status: int, content_type: str, length: int, extra: str = "") -> bytes:
    """Return the head of a response. The connection closes after the response.

    Args:
        status: HTTP status.
        content_type: content type of the body.
        length: bytes of the body.
        extra: further header lines, each with its line end.
    """
    return (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n"
        f"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n{extra}Connection: close\r\n\r\n"
    ).encode("latin-1")
