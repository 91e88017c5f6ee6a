"""Requests of a broker to other brokers about staged messages (docs/adr/0006)."""

from __future__ import annotations

from tianzhou.broker.settings import BrokerSettings
from tianzhou.errors import BrokerError, ConnectFailed, TianzhouError
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.bodies.staging import ATTEMPTS, DECISION, AttemptList, BatchDecision
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply

ASK_TIMEOUT_MS = 5_000


class StagingPeers:
    """Client of other brokers by their names.

    Args:
        client: client for requests to name servers and brokers.
        settings: the broker's settings, with the name servers.
    """

    def __init__(self, client: RemotingClient, settings: BrokerSettings) -> None:
        self._client = client
        self._settings = settings

    async def publish(self, name: str, decision: BatchDecision) -> bool:
        """Have a broker publish its part of a decided batch; return whether all of it is published.

        Raises:
            BrokerError: the broker refuses.
            ConnectFailed: the broker, or all name servers, cannot be reached.
        """
        reply = await self._ask(name, Command(RequestCode.PUBLISH_BATCH, body=DECISION.dumps(decision)))
        published: bool = read_reply(RequestCode.PUBLISH_BATCH, reply).published
        return published

    async def settle(self, attempts: AttemptList) -> BatchDecision | None:
        """Ask the coordinator for its decision about a batch; None means that the attempts are refused.

        Raises:
            BrokerError: the broker refuses.
            ConnectFailed: the broker, or all name servers, cannot be reached.
        """
        reply = await self._ask(
            attempts.coordinator, Command(RequestCode.SETTLE_ATTEMPTS, body=ATTEMPTS.dumps(attempts))
        )
        return DECISION.loads(reply.body) if reply.body else None

    async def _ask(self, name: str, command: Command) -> Command:
        address = await self._address(name)
        reply = await self._client.invoke(address, command, ASK_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=address)
        return reply

    async def _address(self, broker_name: str) -> str:
        failure: Exception | None = None
        for namesrv in self._settings.namesrv_addresses:
            try:
                reply = await self._client.invoke(namesrv, Command(RequestCode.GET_BROKER_CLUSTER_INFO), ASK_TIMEOUT_MS)
                broker = CLUSTER_INFO.loads(reply.body).broker_addr_table.get(broker_name)
            except (TianzhouError, OSError) as error:
                failure = error
                continue
            if broker is not None and broker.master is not None:
                return broker.master
        raise ConnectFailed(f"no name server knows a master of broker {broker_name} now") from failure
