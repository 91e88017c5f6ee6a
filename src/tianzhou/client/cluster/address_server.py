"""Name servers looked up at an address server, for clients that are given none (client.md §1.2)."""

from __future__ import annotations

import asyncio

from tianzhou.errors import ConnectFailed

DEFAULT_SUBGROUP = "nsaddr"
DEFAULT_PORT = 8080
LOOKUP_TIMEOUT_S = 3.0
FIRST_REFRESH_S = 10.0
REFRESH_S = 120.0
_MOST_BYTES = 65_536


def lookup_url(domain: str, subgroup: str = DEFAULT_SUBGROUP, unit_name: str | None = None) -> str:
    """URL at which an address server lists the name servers.

    Args:
        domain: its host, or `host:port`; the port is 8080 unless given.
        subgroup: which list.
        unit_name: the unit the client belongs to.
    """
    host = domain if ":" in domain else f"{domain}:{DEFAULT_PORT}"
    url = f"http://{host}/rocketmq/{subgroup}"
    return f"{url}-{unit_name}?nofix=1" if unit_name else url


async def look_up(url: str) -> str:
    """The answer's first line: addresses joined by `;`.

    Raises:
        ConnectFailed: the address server does not answer, or names nobody.
    """
    # Few clients have an address server, and all of them start sooner without HTTP.
    from http.client import HTTPException
    from urllib.error import URLError

    try:
        text = await asyncio.to_thread(_get, url)
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise ConnectFailed(f"address server {url} does not answer: {reason}; pass namesrv_addr instead?") from error
    if not text:
        raise ConnectFailed(f"address server {url} names no name server; pass namesrv_addr instead?")
    return text


def _get(url: str) -> str:
    import urllib.request

    with urllib.request.urlopen(url, timeout=LOOKUP_TIMEOUT_S) as answer:
        lines = answer.read(_MOST_BYTES).decode("utf-8", "replace").strip().splitlines()
    return lines[0].strip() if lines else ""
