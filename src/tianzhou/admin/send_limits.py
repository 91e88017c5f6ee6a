"""Send limits that brokers enforce: set, list, delete (docs/adr/0031)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.admin.reach import Reach
from tianzhou.client.cluster.remedies import check
from tianzhou.errors import BrokerError, ClientError, ProtocolError, TianzhouError
from tianzhou.model.send_limit import LimitScope, SendLimit, client_name, decode_limit
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.json_dialect import loads

TABLE: Final = "sendLimitTable"
"""Member of a broker's reply: limits by key."""
REFUSED: Final = "refused"
"""Member of a broker's reply: refused messages by key of the limit."""
LIMITED_BY: Final = "sendsLimitedBy"
"""Runtime figure of a broker: the limits that have refused messages within the last minute, each with its number of
refusals since the start; missing without any."""


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A send limit at one broker.

    Attributes:
        broker_name: name of the broker.
        limit: the limit.
        refused: number of messages that it has refused since the start of the broker.
        last_name: the topic, group or client of the last refusal; empty without a refusal.
        last_refused_ms: time of the last refusal, in ms since the epoch; 0 without a refusal.
    """

    broker_name: str
    limit: SendLimit
    refused: int = 0
    last_name: str = ""
    last_refused_ms: int = 0


class SendLimits:
    """Operations on send limits. Each broker counts its own sends.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def set(self, limit: SendLimit, *, broker_name: str | None = None) -> list[str]:
        """Set a limit at the brokers of all clusters. It replaces a limit with the same scope and name.

        Args:
            limit: the limit.
            broker_name: name of the only broker to change; None takes all.

        Returns:
            Names of the brokers that have the limit now.

        Raises:
            TianzhouError: a broker refuses or does not answer; the text names the brokers that have the limit.
        """
        values = {name: str(value) for name, value in limit.to_json().items()}
        return await self._update({"limit": limit.key, **values}, broker_name)

    async def delete(self, scope: LimitScope, name: str, *, broker_name: str | None = None) -> list[str]:
        """Delete a limit.

        Args:
            scope: scope of the limit.
            name: name of the limit's topic, group or client.
            broker_name: name of the only broker to change; None takes all.

        Returns:
            Names of the brokers that had the limit.

        Raises:
            ClientError: no broker has the limit.
            TianzhouError: a broker refuses or does not answer; the text names the brokers that have deleted the limit.
        """
        name = client_name(name) if scope is LimitScope.CLIENT else name
        done = await self._update({"limit": f"{scope}:{name}", "delete": "true"}, broker_name)
        if not done:
            raise ClientError(f"no broker has a limit of {scope} {name}; list them with `tianzhou limit list`")
        return done

    async def _update(self, fields: Mapping[str, str], broker_name: str | None) -> list[str]:
        done: list[str] = []
        for name, address in await self._masters(broker_name):
            try:
                await self._call(address, RequestCode.UPDATE_SEND_LIMITS, fields)
            except BrokerError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise _partly(done, name, error) from error
            except TianzhouError as error:
                raise _partly(done, name, error) from error
            else:
                done.append(name)
        return done

    async def list(self, broker_name: str | None = None) -> list[LimitStatus]:
        """Return the limits, grouped by broker.

        Args:
            broker_name: name of the only broker to read; None takes all.

        Raises:
            TianzhouError: a broker does not support limits, refuses, or does not answer.
        """
        found: list[LimitStatus] = []
        for name, address in await self._masters(broker_name):
            reply = await self._call(address, RequestCode.READ_SEND_LIMITS, {})
            found += read_limits(name, reply.body)
        return found

    async def _masters(self, broker_name: str | None) -> Iterable[tuple[str, str]]:
        masters = await self._reach.masters()
        if broker_name is not None and broker_name not in masters:
            raise ClientError(f"there is no broker {broker_name} with a master; there are {', '.join(sorted(masters))}")
        return [(name, address) for name, address in sorted(masters.items()) if broker_name in (None, name)]

    async def _call(self, address: str, code: RequestCode, fields: Mapping[str, str]) -> Command:
        command = Command(int(code), fields=dict(fields))
        return check(await self._reach.remoting.invoke(address, command, self._reach.timeout_ms))


def read_limits(broker_name: str, body: bytes | memoryview) -> list[LimitStatus]:
    """Return the limits in a broker's reply.

    Args:
        broker_name: name of the broker.
        body: body of the reply.

    Raises:
        ProtocolError: the body is invalid.
    """
    try:
        value = loads(body)
        refused = value.get(REFUSED, {})
        found = []
        for key, one in value[TABLE].items():
            count = refused.get(key, {})
            found.append(
                LimitStatus(
                    broker_name,
                    decode_limit(key, one),
                    int(count.get("count", 0)),
                    str(count.get("name", "")),
                    int(count.get("lastMs", 0)),
                )
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"broker {broker_name} answers no table of limits: {error!r}") from error
    return sorted(found, key=lambda one: one.limit.key)


def _partly(done: list[str], name: str, error: TianzhouError) -> TianzhouError:
    if not done:
        return error
    return ClientError(f"broker {name} has not carried it out: {error}; {', '.join(done)} has: repeat the command")
