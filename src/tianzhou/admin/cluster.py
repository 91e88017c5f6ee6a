"""Brokers and name servers: processes, configuration, write permission, KV entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tianzhou.admin.reach import Reach, unless_absent
from tianzhou.admin.replicas import Lag, Membership, is_master, lag_of, membership_of
from tianzhou.client.cluster.remedies import check
from tianzhou.client.cluster.rpc import request
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import BrokerData, ClusterInfo
from tianzhou.settings import format_properties, parse_properties
from tianzhou.wire.bodies.replication import HA_STATUS, HaStatus
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.codes import AT_NEXT_START, RequestCode, ResponseCode
from tianzhou.wire.fields import read_reply


@dataclass(slots=True, frozen=True)
class TaskTrouble:
    """A task of a broker that fails and is retried.

    Attributes:
        task: name of the task.
        why: text of its last error.
        count: number of failures in a row.
        since_ms: time of the first of these failures, in ms.
    """

    task: str
    why: str
    count: int
    since_ms: int


@dataclass(slots=True, frozen=True)
class BrokerStatus:
    """One broker process, as mqadmin's `clusterList` shows it.

    Attributes:
        cluster: name of its cluster.
        broker_name: its name.
        broker_id: 0 for a master, at least 1 for a slave.
        address: its address for clients.
        runtime: its report about itself (wire.md §9.11); empty when it did not answer.
        error: why it did not answer; None when it answered.
        copies: its replication status; None when it does not report one, as brokers of RocketMQ 4.
        lag: a slave's distance behind its master's log; None when it is unknown, and for a master.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    copies: HaStatus | None = None
    lag: Lag | None = None

    @property
    def role(self) -> str:
        """`master` or `slave`. For a DLedger member that reports its role: `leader`, `follower` or `candidate`."""
        if self.membership is not None:
            return self.membership.role
        return "master" if self.is_master else "slave"

    @property
    def is_master(self) -> bool:
        """Whether it is the broker of its name that accepts messages."""
        return is_master(self.broker_id, self.copies)

    @property
    def membership(self) -> Membership | None:
        """Its state in its DLedger group; None without a group, and for Apache's brokers, which do not report it."""
        return membership_of(self.runtime)

    @property
    def follows(self) -> str:
        """HA address from which a slave copies its log: its master's, or its leader's.

        Empty while it copies from none.
        """
        return "" if self.copies is None else self.copies.ha_client_runtime_info.master_addr or ""

    @property
    def version(self) -> str:
        """Version of RocketMQ whose behaviour the broker follows, such as `V5_3_3`; empty when unknown."""
        return self.runtime.get("brokerVersionDesc", "")

    @property
    def tianzhou_version(self) -> str:
        """Version of Tianzhou; empty for a broker of another project."""
        return self.runtime.get("tianzhouVersion", "")

    @property
    def refused(self) -> dict[str, int]:
        """Number of refusals because of each limit, by the limit's name."""
        return {
            key.removeprefix(_REFUSED): int(value)
            for key, value in self.runtime.items()
            if key.startswith(_REFUSED) and value.isdecimal()
        }

    @property
    def put_tps(self) -> float:
        """Incoming messages per second, averaged over the last ten seconds."""
        return _first_number(self.runtime.get("putTps"))

    @property
    def get_tps(self) -> float:
        """Outgoing messages per second, averaged over the last ten seconds."""
        return _first_number(self.runtime.get("getTransferredTps") or self.runtime.get("getTransferedTps"))

    @property
    def troubles(self) -> list[TaskTrouble]:
        """Tasks that fail now and are retried; empty also for a broker that does not report them."""
        try:
            return [
                TaskTrouble(str(one["task"]), str(one["why"]), int(one["count"]), int(one["sinceMs"]))
                for one in json.loads(self.runtime.get("taskTroubles", "[]"))
            ]
        except (ValueError, TypeError, KeyError, RecursionError):
            return []

    @property
    def rebuilt_state(self) -> str:
        """State files that were missing at its start, joined by commas; empty when none was missing."""
        return self.runtime.get("rebuiltState", "")

    @property
    def damaged_state_files(self) -> str:
        """Damaged state files in its store, joined by commas; empty when there are none."""
        return self.runtime.get("damagedStateFiles", "")

    @property
    def disk_ratio(self) -> float:
        """Used share of its log's disk, 0 to 1; negative when unknown."""
        try:
            return float(self.runtime.get("commitLogDiskRatio", ""))
        except ValueError:
            return -1.0


_REFUSED = "refused_"


def _first_number(text: str | None) -> float:
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return 0.0


class Cluster:
    """Operations on servers.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    @property
    def name_servers(self) -> list[str]:
        """Addresses of the name servers in use."""
        return list(self._reach.instance.name_servers)

    async def info(self) -> ClusterInfo:
        """Return all brokers and clusters that the name server knows."""
        return await self._reach.cluster_info()

    async def names(self) -> list[str]:
        """Return the names of all clusters."""
        return sorted((await self.info()).cluster_addr_table)

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the masters' addresses by broker name, for one cluster or all.

        Raises:
            ClientError: the cluster does not exist, or no broker has a master.
        """
        return await self._reach.masters(cluster)

    async def status(self, cluster: str | None = None) -> list[BrokerStatus]:
        """Return every broker process with its report about itself, including processes that do not answer.

        Raises:
            ClientError: the cluster does not exist, or no broker is registered.
        """
        return await self.status_of(await self._reach.brokers(cluster))

    async def status_of(self, brokers: Iterable[BrokerData]) -> list[BrokerStatus]:
        """Return the status of the given brokers only.

        Args:
            brokers: broker names with their addresses, as name servers return them.
        """
        processes = [
            BrokerStatus(broker.cluster, broker.broker_name, broker_id, address)
            for broker in brokers
            for broker_id, address in sorted(broker.broker_addrs.items())
        ]

        async def ask(address: str) -> dict[str, str] | str:
            try:
                return await self.runtime(address)
            except TianzhouError as error:
                return str(error)

        answers = await self._reach.each([process.address for process in processes], ask)
        answered = [
            replace(process, error=answer) if isinstance(answer, str) else replace(process, runtime=answer)
            for process in processes
            for answer in [answers[process.address]]
        ]
        groups = {(one.cluster, one.broker_name) for one in answered if one.broker_id}
        return await self._with_copies(answered, groups) if groups else answered

    async def _with_copies(self, brokers: list[BrokerStatus], groups: set[tuple[str, str]]) -> list[BrokerStatus]:
        """Add the replication status of brokers that have slaves."""

        async def ask(address: str) -> HaStatus | None:
            try:
                return await self.copies(address)
            except TianzhouError:
                return None  # RocketMQ 4 does not support the request

        members = [one for one in brokers if (one.cluster, one.broker_name) in groups and one.error is None]
        statuses = await self._reach.each([one.address for one in members], ask)
        found = [replace(one, copies=statuses.get(one.address)) for one in brokers]
        masters = {(one.cluster, one.broker_name): one for one in found if one.is_master}
        return [
            one
            if one.is_master or (master := masters.get((one.cluster, one.broker_name))) is None
            else replace(one, lag=lag_of(one.copies, master.copies, master.runtime))
            for one in found
        ]

    async def copies(self, address: str) -> HaStatus:
        """Return the replication status of a broker's log, as mqadmin's `haStatus` shows it.

        Args:
            address: address of a master or a slave.

        Raises:
            BrokerError: the broker does not support the request, as brokers of RocketMQ 4.
        """
        return await self._reach.load(address, RequestCode.GET_BROKER_HA_STATUS, HA_STATUS)

    async def runtime(self, address: str) -> dict[str, str]:
        """Return a broker's report about itself (wire.md §9.11)."""
        return await self._reach.load(address, RequestCode.GET_BROKER_RUNTIME_INFO, KV_TABLE)

    # --- configuration ---------------------------------------------------------------------------------------

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return a broker's configuration: RocketMQ's keys and their values."""
        reply = await self._reach.call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(bytes(reply.body).decode(), source=address)

    async def update_broker_config(
        self, address: str, values: Mapping[str, str], *, at_next_start: bool = False
    ) -> None:
        """Change a running broker's configuration.

        Args:
            address: address of the broker.
            values: RocketMQ's keys to their new values.
            at_next_start: whether to write the values only to the broker's file, for its next start. Only Tianzhou's
                brokers support this.

        Raises:
            BrokerError: a running broker cannot change one of the keys.
            ClientError: `at_next_start` is set and the broker is no broker of Tianzhou. The broker changed nothing.
        """
        body, code = format_properties(dict(values)).encode(), RequestCode.UPDATE_BROKER_CONFIG
        if not at_next_start:
            await self._reach.call(address, code, body=body)
            return
        if "tianzhouVersion" not in await self.runtime(address):
            raise ClientError(
                f"{address} is no broker of Tianzhou, and would apply the settings at once; write them to its "
                "configuration file and start it again"
            )
        command = request(code, body)
        command.fields[AT_NEXT_START] = "true"
        reply = check(await self._reach.remoting.invoke(address, command, self._reach.timeout_ms), address)
        if reply.fields.get(AT_NEXT_START) != "true":
            raise ClientError(
                f"{address} is an older broker of Tianzhou and has applied the settings at once; its file has them, too"
            )

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        """Return the configuration of every name server, by address."""
        replies = await self._reach.each_name_server(RequestCode.GET_NAMESRV_CONFIG)
        return {
            address: parse_properties(bytes(reply.body).decode(), source=address) for address, reply in replies.items()
        }

    async def update_namesrv_config(self, values: Mapping[str, str]) -> None:
        """Change the configuration of every name server."""
        body = format_properties(dict(values)).encode()
        await self._reach.each_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    # --- write permission ------------------------------------------------------------------------------------

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Remove the write permission of a broker, so that producers send to other brokers before it is stopped.

        Returns:
            Number of affected topics, by name server.
        """
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        replies = await self._reach.each_name_server(code, broker_name=broker_name)
        return {address: read_reply(code, reply).wipe_topic_count for address, reply in replies.items()}

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Restore the write permission of a broker after `wipe_write_perm`.

        Returns:
            Number of affected topics, by name server.
        """
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        replies = await self._reach.each_name_server(code, broker_name=broker_name)
        return {address: read_reply(code, reply).add_topic_count for address, reply in replies.items()}

    # --- KV entries ------------------------------------------------------------------------------------------

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a KV entry at every name server."""
        await self._reach.each_name_server(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """Return the value of a KV entry; None when there is none."""
        code = RequestCode.GET_KV_CONFIG
        request = self._reach.ask_name_server(code, namespace=namespace, key=key)
        reply = await unless_absent(request, None, ResponseCode.QUERY_NOT_FOUND)
        value: str | None = None if reply is None else read_reply(code, reply).value
        return value

    async def kv_entries(self, namespace: str) -> dict[str, str]:
        """Return all KV entries of a namespace; empty when the namespace does not exist."""
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        request = self._reach.ask_name_server(code, namespace=namespace)
        reply = await unless_absent(request, None, ResponseCode.QUERY_NOT_FOUND)
        return {} if reply is None else KV_TABLE.loads(reply.body)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Remove a KV entry from every name server."""
        await self._reach.each_name_server(RequestCode.DELETE_KV_CONFIG, namespace=namespace, key=key)
