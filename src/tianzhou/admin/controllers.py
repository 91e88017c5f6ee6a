"""Controllers of RocketMQ 5, which elect masters: what they know, and what they are to do (broker.md §18)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tianzhou.admin.reach import Reach
from tianzhou.settings import format_properties, parse_properties
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from tianzhou.wire.json_dialect import dumps, loads


class Controllers:
    """Operations on controllers of RocketMQ 5; Tianzhou has none, its groups elect their leaders among themselves.

    All of them raise `BrokerError` when the server refuses, or is no controller.

    Args:
        reach: asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def metadata(self, address: str) -> dict[str, Any]:
        """A controller's group, its leader, and whether it is the leader itself (1005)."""
        code = RequestCode.CONTROLLER_GET_METADATA_INFO
        header = read_reply(code, await self._reach.call(address, code))
        return {
            "group": header.group,
            "controllerLeaderId": header.controller_leader_id,
            "controllerLeaderAddress": header.controller_leader_address,
            "peers": header.peers,
        }

    async def leader(self, address: str) -> str:
        """Address of the leader of a controller's group."""
        return (await self.metadata(address))["controllerLeaderAddress"] or address

    async def sync_states(self, address: str, broker_names: Iterable[str]) -> dict[str, Any]:
        """Which brokers of a name are in sync with their master, by name (1006)."""
        body = dumps(list(broker_names))
        reply = await self._reach.call(address, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        return dict(loads(reply.body).get("replicasInfoTable") or {})

    async def elect(self, address: str, cluster: str, broker_name: str, broker_id: int) -> dict[str, Any]:
        """Make a broker the master of its name (1002)."""
        code = RequestCode.CONTROLLER_ELECT_MASTER
        reply = await self._reach.call(
            address, code, cluster_name=cluster, broker_name=broker_name, broker_id=broker_id, designate_elect=True
        )
        header = read_reply(code, reply)
        return {
            "masterBrokerId": header.master_broker_id,
            "masterAddress": header.master_address,
            "masterEpoch": header.master_epoch,
            "syncStateSetEpoch": header.sync_state_set_epoch,
        } | _body(reply)

    async def clean(
        self, address: str, broker_name: str, cluster: str | None = None, broker_ids: str | None = None,
        living: bool = False,
    ) -> None:  # fmt: skip
        """Have a controller forget brokers (1011).

        Args:
            address: the controller.
            broker_name: their name.
            cluster: their cluster.
            broker_ids: which of them, separated by `;`; None for all.
            living: also those that are alive.
        """
        await self._reach.call(
            address, RequestCode.CLEAN_BROKER_DATA, cluster_name=cluster, broker_name=broker_name,
            broker_controller_ids_to_clean=broker_ids, is_clean_living_broker=living,
        )  # fmt: skip

    async def config(self, address: str) -> dict[str, str]:
        """A controller's configuration (1010)."""
        reply = await self._reach.call(address, RequestCode.GET_CONTROLLER_CONFIG)
        return parse_properties(bytes(reply.body).decode(), source=address)

    async def update_config(self, address: str, values: Mapping[str, str]) -> None:
        """Change a running controller's configuration (1009)."""
        body = format_properties(dict(values)).encode()
        await self._reach.call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)


def _body(reply: Command) -> dict[str, Any]:
    return dict(loads(reply.body)) if reply.body else {}
