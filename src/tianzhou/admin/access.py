"""Users and policies of RocketMQ 5.3: create, change, delete, list (broker.md §22.2, wire.md §11.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tianzhou.admin.reach import Reach
from tianzhou.errors import BrokerError, ClientError
from tianzhou.wire.bodies.access import (
    ACL_INFO,
    USER_INFO,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    load_list,
)
from tianzhou.wire.codes import RequestCode, ResponseCode

_USER_THERE: Final = "The user is existed"
_ACL_GONE: Final = "The acl is not exist."


class Access:
    """Operations on users and policies.

    Each server stores its own users and policies. A change goes to all brokers of a cluster, including slaves, and to
    the name servers that have users. Apache's name servers have none.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    # --- users -----------------------------------------------------------------------------------------------

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        user_type: str = "Normal",
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Create a user.

        Args:
            username: the user's name, which is the access key of its clients.
            password: the user's secret key.
            user_type: `Normal`, or `Super` for a user with all permissions.
            cluster: the cluster whose brokers get the user; None takes all clusters.
            broker_addr: address of the only server to change; None takes all servers.

        Returns:
            Addresses of the servers that have the user now.

        Raises:
            ClientError: the cluster does not exist.
            BrokerError: a server refuses, for example because the user exists there; other servers may have it now.
        """
        body = USER_INFO.dumps(UserInfo(username, password, user_type))
        return await self._change(
            RequestCode.AUTH_CREATE_USER, cluster, broker_addr, body, username=_named(username, "username")
        )

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        status: str | None = None,
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Change a user. An argument of None leaves the present value.

        Args:
            username: the user's name.
            password: the new secret key; requests signed with the old key are refused at once.
            user_type: `Normal` or `Super`.
            status: `enable` or `disable`.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that changed the user.

        Raises:
            ClientError: all values are None, or the cluster does not exist.
            BrokerError: a server refuses, for example because it has no such user.
        """
        if password is None and user_type is None and status is None:
            raise ClientError(f"user {username}: give password, user_type or status")
        body = USER_INFO.dumps(UserInfo(username, password, user_type, status))
        return await self._change(
            RequestCode.AUTH_UPDATE_USER, cluster, broker_addr, body, username=_named(username, "username")
        )

    async def delete_user(
        self, username: str, *, cluster: str | None = None, broker_addr: str | None = None
    ) -> list[str]:
        """Delete a user with its policies. Deleting a missing user is no error.

        Args:
            username: the user's name.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers, which do not have the user now.

        Raises:
            BrokerError: a server refuses.
        """
        return await self._change(
            RequestCode.AUTH_DELETE_USER, cluster, broker_addr, username=_named(username, "username")
        )

    async def user(
        self, username: str, *, cluster: str | None = None, broker_addr: str | None = None
    ) -> UserInfo | None:
        """Return a user without its password, as one broker stores it; None when the user does not exist.

        Args:
            username: the user's name.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        address = await self._one(cluster, broker_addr)
        code = RequestCode.AUTH_GET_USER
        reply = await self._reach.call(address, code, username=_named(username, "username"))
        return USER_INFO.loads(reply.body) if reply.body else None

    async def users(
        self, part: str = "", *, cluster: str | None = None, broker_addr: str | None = None
    ) -> list[UserInfo]:
        """Return users without their passwords, as one broker stores them.

        Args:
            part: substring of the wanted users' names; empty selects all.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        # Apache's brokers return passwords.
        found = await self.users_with_passwords(await self._one(cluster, broker_addr), part)
        return [UserInfo(one.username, None, one.user_type, one.user_status) for one in found]

    async def users_with_passwords(self, broker_addr: str, part: str = "") -> list[UserInfo]:
        """Return a broker's users with their passwords, for a copy. Only Apache's brokers return passwords.

        Args:
            broker_addr: address of the broker.
            part: substring of the wanted users' names; empty selects all.
        """
        reply = await self._reach.call(broker_addr, RequestCode.AUTH_LIST_USER, filter=part)
        return load_list(USER_INFO, reply.body)

    # --- policies --------------------------------------------------------------------------------------------

    async def set_acl(
        self,
        username: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        decision: str = "Allow",
        source_ips: Sequence[str] = (),
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Allow or deny a user actions on resources. Earlier entries for the same resources are replaced.

        Args:
            username: the user.
            resources: `Topic:orders`, `Topic:orders*` (all topics with this prefix), `Group:*`, `Cluster:*`, or `*`.
            actions: `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`, or `All`.
            decision: `Allow` or `Deny`.
            source_ips: client addresses and CIDR ranges for which the entry applies; empty applies to all.
            policy_type: `Custom`, or `Default` for an entry that applies when no custom entry matches.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers that have the policy now.

        Raises:
            ClientError: the cluster does not exist.
            BrokerError: a server refuses: it has no such user, or a value is invalid.
        """
        entries = [PolicyEntryInfo(one, list(actions), list(source_ips) or None, decision) for one in resources]
        subject = _subject(username)
        body = ACL_INFO.dumps(AclInfo(subject, [PolicyInfo(policy_type, entries)]))
        return await self._change(RequestCode.AUTH_UPDATE_ACL, cluster, broker_addr, body, subject=subject)

    async def delete_acl(
        self,
        username: str,
        resource: str | None = None,
        *,
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker_addr: str | None = None,
    ) -> list[str]:
        """Remove a user's policy entries for a resource, or all policies of the user.

        Args:
            username: the user.
            resource: as in `set_acl`; None removes all policies.
            policy_type: type of the policy that has the entry.
            cluster: see `create_user`.
            broker_addr: see `create_user`.

        Returns:
            Addresses of the servers, which do not have the entry now.

        Raises:
            BrokerError: a server refuses: it has no such user, or the user has no policies.
        """
        return await self._change(
            RequestCode.AUTH_DELETE_ACL,
            cluster,
            broker_addr,
            subject=_subject(username),
            policy_type=policy_type,
            resource=resource,
        )

    async def acl(self, username: str, *, cluster: str | None = None, broker_addr: str | None = None) -> AclInfo | None:
        """Return a user's policies as one broker stores them; None when the user has none.

        Args:
            username: the user.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.

        Raises:
            BrokerError: the server refuses; Apache's brokers refuse when the user does not exist.
        """
        address, code = await self._one(cluster, broker_addr), RequestCode.AUTH_GET_ACL
        reply = await self._reach.call(address, code, subject=_subject(username))
        return ACL_INFO.loads(reply.body) if reply.body else None

    async def acls(
        self, subject: str = "", resource: str = "", *, cluster: str | None = None, broker_addr: str | None = None
    ) -> list[AclInfo]:
        """Return policies as one broker stores them.

        Args:
            subject: substring of the wanted subjects, which are `User:` and a name; empty selects all.
            resource: substring of the resources of the wanted entries; empty selects all.
            cluster: the cluster whose broker is queried.
            broker_addr: the server to query.
        """
        address = await self._one(cluster, broker_addr)
        code = RequestCode.AUTH_LIST_ACL
        reply = await self._reach.call(address, code, subject_filter=subject, resource_filter=resource)
        return load_list(ACL_INFO, reply.body)

    async def _one(self, cluster: str | None, broker_addr: str | None) -> str:
        return broker_addr or next(iter((await self._reach.masters(cluster)).values()))

    async def _change(
        self, code: int, cluster: str | None, broker_addr: str | None, body: bytes = b"", **header: str | None
    ) -> list[str]:
        """Send a change to all servers, and return their addresses."""
        if broker_addr is not None:
            await self._reach.call(broker_addr, code, body=body, **header)
            return [broker_addr]
        brokers = await self._reach.brokers(cluster)
        addresses = [address for broker in brokers for _, address in sorted(broker.broker_addrs.items())]
        name_servers = set(self._reach.instance.name_servers)

        async def one(address: str) -> list[BrokerError]:
            try:
                await self._reach.call(address, code, body=body, **header)
            except BrokerError as error:
                return [error]
            return []

        found = await self._reach.each([*addresses, *sorted(name_servers)], one)
        changed = [address for address, errors in found.items() if not errors]
        for address, errors in found.items():
            for error in errors:
                if address in name_servers and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    continue
                # Name servers and brokers in one process share their users, so a server may already have the change.
                # After a partial failure, the caller can repeat the change.
                if not changed or error.remark not in (_USER_THERE, _ACL_GONE):
                    raise error
                if error.remark == _USER_THERE:
                    await self._reach.call(address, RequestCode.AUTH_UPDATE_USER, body=body, **header)
                changed.append(address)
        return [address for address in found if address in changed]


def _named(name: str, what: str) -> str:
    if not name.strip():
        raise ClientError(f"{what} is empty; give a name")
    return name


def _subject(username: str) -> str:
    return f"User:{_named(username, 'username')}"
