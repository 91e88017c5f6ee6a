"""Accounts of RocketMQ 4.x brokers in `plain_acl.yml`: set, delete, white lists (broker.md §22.1)."""

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
        broker_name: the broker's name.
        address: the broker's address.
        versions: counter and timestamp (ms since the epoch) by file path; RocketMQ 4.4 to 4.7 report no path.
    """

    cluster: str
    broker_name: str
    address: str
    versions: dict[str, tuple[int, int]]


class Accounts:
    """Operations on accounts of RocketMQ 4.x. `Access` has the operations on users of RocketMQ 5.3.

    All methods raise `BrokerError` when the broker refuses. Brokers without access control and brokers of RocketMQ 5.3
    refuse.

    Args:
        reach: sends the requests.
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
        """Create or change an account on a broker (50). None leaves a value unchanged, but `admin` becomes false.

        Args:
            address: address of the broker.
            access_key: access key, which names the account.
            secret_key: secret key that signs the account's requests.
            admin: whether the account has administrator permissions.
            white_remote_address: client addresses that need no signature.
            default_topic_perm: permission on topics by default: `DENY`, `PUB`, `SUB`, or `PUB|SUB`.
            default_group_perm: permission on groups by default, in the same form.
            topic_perms: permissions on single topics, such as `orders=PUB|SUB`.
            group_perms: permissions on single groups, such as `billing=SUB`.
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
        """Set the client addresses from which all requests need no signature (53).

        Args:
            address: address of the broker.
            white_addresses: addresses and ranges, separated by commas.
            file: path of the account file to change, when the broker has several.
        """
        await self._reach.call(
            address,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            global_white_addrs=white_addresses,
            acl_file_full_path=file,
        )

    async def all(self, address: str) -> PlainAccounts:
        """Return all accounts of a broker (54). Apache's 4.9 returns secret keys, Tianzhou does not."""
        return await self._reach.load(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, PLAIN_ACCOUNTS)

    async def files(self, address: str) -> AccountFiles:
        """Return the versions of a broker's account files (52)."""
        code = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
        header = read_reply(code, await self._reach.call(address, code))
        found = (
            json.loads(header.all_acl_file_version) if header.all_acl_file_version else {"": json.loads(header.version)}
        )
        versions = {path: (int(one["counter"]), int(one["timestamp"])) for path, one in found.items()}
        return AccountFiles(header.cluster_name, header.broker_name, header.broker_addr, versions)
