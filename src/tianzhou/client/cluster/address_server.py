"""Lookup of name servers at an address server, for clients without name server addresses (client.md §1.2)."""

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
    """Return the URL at which an address server lists the name servers.

    Args:
        domain: host of the address server, or `host:port`; the default port is 8080.
        subgroup: name of the list.
        unit_name: the client's unit.
    """
    host = domain if ":" in domain else f"{domain}:{DEFAULT_PORT}"
    url = f"http://{host}/rocketmq/{subgroup}"
    return f"{url}-{unit_name}?nofix=1" if unit_name else url


async def look_up(url: str) -> str:
    """Return the first line of the address server's answer: addresses joined by `;`.

    Raises:
        ConnectFailed: the address server does not answer, or its list is empty.
    """
    # Few clients have an address server. All others start sooner without the HTTP modules.
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
