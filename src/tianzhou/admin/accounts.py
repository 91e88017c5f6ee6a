"""Accounts of RocketMQ 4.x brokers, those of `plain_acl.yml`: set, delete, white lists (broker.md §22.1)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tianzhou.admin.reach import Reach
from tianzhou.wire.bodies.access import PLAIN_ACCOUNTS, PlainAccounts
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.fields import read_reply


@dataclass(slots=True, frozen=True)
class AccountFiles:
    """Versions of a broker's account files.

    Attributes:
        cluster: the broker's cluster.
        broker_name: its name.
        address: where it listens.
        versions: counter and timestamp in milliseconds by file; RocketMQ 4.4 to 4.7 name no file.
    """

    cluster: str
    broker_name: str
    address: str
    versions: dict[str, tuple[int, int]]


class Accounts:
    """Operations on accounts of RocketMQ 4.x; those of 5.3 are `Access`.

    All of them raise `BrokerError` when the broker refuses, as one without access control and those of RocketMQ 5.3.

    Args:
        reach: asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def put(
        self,
        address: str,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool | None = None,
        white_remote_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: Iterable[str] = (),
        group_perms: Iterable[str] = (),
    ) -> None:
        """Create an account on a broker, or change it; what is None stays, but for `admin`, which becomes false (50).

        Args:
            address: the broker.
            access_key: names the account.
            secret_key: what it signs with.
            admin: whether it may administer.
            white_remote_address: addresses that need no signature.
            default_topic_perm: what it may do with topics: `DENY`, `PUB`, `SUB`, or `PUB|SUB`.
            default_group_perm: the same with groups.
            topic_perms: exceptions, as `orders=PUB|SUB`.
            group_perms: exceptions, as `billing=SUB`.
        """
        await self._reach.call(
            address,
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            access_key=access_key,
            secret_key=secret_key,
            admin=admin,
            white_remote_address=white_remote_address,
            default_topic_perm=default_topic_perm,
            default_group_perm=default_group_perm,
            topic_perms=",".join(topic_perms) or None,
            group_perms=",".join(group_perms) or None,
        )

    async def delete(self, address: str, access_key: str) -> None:
        """Delete an account from a broker (51)."""
        await self._reach.call(address, RequestCode.DELETE_ACL_CONFIG, access_key=access_key)

    async def set_white_addresses(self, address: str, white_addresses: str, file: str | None = None) -> None:
        """Set which addresses need no signature whoever signs (53).

        Args:
            address: the broker.
            white_addresses: addresses and ranges, separated by commas.
            file: the account file they are written to, where a broker has several.
        """
        await self._reach.call(
            address,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            global_white_addrs=white_addresses,
            acl_file_full_path=file,
        )

    async def all(self, address: str) -> PlainAccounts:
        """All accounts of a broker (54); those of Tianzhou tell no secret, those of Apache's 4.9 do."""
        return await self._reach.load(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, PLAIN_ACCOUNTS)

    async def files(self, address: str) -> AccountFiles:
        """Versions of a broker's account files (52)."""
        code = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
        header = read_reply(code, await self._reach.call(address, code))
        found = (
            json.loads(header.all_acl_file_version) if header.all_acl_file_version else {"": json.loads(header.version)}
        )
        versions = {path: (int(one["counter"]), int(one["timestamp"])) for path, one in found.items()}
        return AccountFiles(header.cluster_name, header.broker_name, header.broker_addr, versions)
