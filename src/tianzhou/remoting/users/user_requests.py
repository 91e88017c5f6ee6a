"""Requests that manage users and policies (3001 to 3010, wire.md §11.4); texts and codes as of RocketMQ 5.3.3.

Replies never contain a password, while RocketMQ's do: so `mqadmin copyUser` cannot create users from them elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from tianzhou.access.acl_changes import listed, read_policies, shown_acl, subject_name
from tianzhou.access.policies import PolicyType, parse_resource
from tianzhou.access.requests import AccessDenied
from tianzhou.access.user_table import UserTable
from tianzhou.access.users import UserStatus, UserType, invalid, named, refused, shown_user
from tianzhou.errors import BrokerError, ProtocolError
from tianzhou.escaping import shown
from tianzhou.limits import ACCESS_BODY
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.access_gate import access_request
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.wire.bodies.access import ACL_INFO, USER_INFO, AclInfo, UserInfo, dump_list
from tianzhou.wire.bodies.beans import Bean
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.json_shape import check_objects

T = TypeVar("T")
Serve = Callable[[Connection, Command], Command | Awaitable[Command]]
SUCCESS = ResponseCode.SUCCESS


class UserRequests:
    """Handlers of requests about users and policies. The access gate checks their senders before.

    Args:
        store: users and policies.
    """

    def __init__(self, store: UserStore) -> None:
        self._store = store

    def routes(self) -> Mapping[int, Serve]:
        """Return the methods by the request codes they serve."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    async def create_user(self, connection: Connection, command: Command) -> Command:
        """Create a user (3001). Only a super user may create super users."""
        info = _user(command)
        if _wants_super(info) and not self.by_super(connection, command):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")

        def work(table: UserTable) -> UserTable:
            done = self._store.follows() and table.has_user(info)
            return table if done else table.create_user(info, self._store.bounds)

        await self._store.change(work)
        return command.reply(SUCCESS)

    async def update_user(self, connection: Connection, command: Command) -> Command:
        """Change a user's password, type or status (3002). Only a super user may change super users."""
        info = _user(command)
        by_super = self.by_super(connection, command)
        if _wants_super(info) and not by_super:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")

        def work(table: UserTable) -> UserTable:
            _guard_super(table, info.username or "", by_super)
            return table.update_user(info)

        await self._store.change(work)
        return command.reply(SUCCESS)

    async def delete_user(self, connection: Connection, command: Command) -> Command:
        """Remove a user and its policies (3003). A missing user is no error."""
        username = command.fields.get("username", "")
        if not username.strip():
            raise refused("username can not be blank")
        by_super = self.by_super(connection, command)

        def work(table: UserTable) -> UserTable:
            _guard_super(table, username, by_super)
            return table.delete_user(username)

        await self._store.change(work)
        return command.reply(SUCCESS)

    def get_user(self, connection: Connection, command: Command) -> Command:
        """Return a user without its password (3004); no body when the user does not exist."""
        user = self._store.table.users.get(_username(command))
        return command.reply(SUCCESS, body=b"" if user is None else USER_INFO.dumps(shown_user(user)))

    def list_users(self, connection: Connection, command: Command) -> Command:
        """Return users whose names contain a text, without passwords (3005); no body when there are none."""
        part = command.fields.get("filter", "")
        found = [user for name, user in sorted(self._store.table.users.items()) if not part.strip() or part in name]
        return command.reply(SUCCESS, body=dump_list(USER_INFO, map(shown_user, found)))

    async def put_acl(self, connection: Connection, command: Command) -> Command:
        """Add entries to a user's policies, or replace those for the same resources (3006, 3007)."""
        info = _loaded(ACL_INFO, command) or AclInfo()
        if not info.policies:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        name = subject_name(info.subject) or _subject(command)
        policies = read_policies(info.policies)
        await self._store.change(lambda table: table.put_acl(name, policies, self._store.bounds))
        return command.reply(SUCCESS)

    async def delete_acl(self, connection: Connection, command: Command) -> Command:
        """Remove a user's entries for a resource, or all its policies (3008)."""
        name, fields = _subject(command), command.fields
        kind = named(PolicyType, fields.get("policyType"), "policyType") or PolicyType.CUSTOM
        text = fields.get("resource", "").strip()
        resource = parse_resource(text)
        if text and resource is None:
            # RocketMQ would remove all policies.
            raise invalid(f"resource {shown(text)}: expected one such as Topic:orders, Group:readers* or *")
        await self._store.change(lambda table: table.delete_acl(name, kind, resource), refused_when_done=True)
        return command.reply(SUCCESS)

    def get_acl(self, connection: Connection, command: Command) -> Command:
        """Return the policies of a user (3009); no body when it has none."""
        name, table = _subject(command), self._store.table
        if name not in table.users:
            raise refused("The subject is not exist.")
        policies = table.acls.get(name)
        return command.reply(SUCCESS, body=b"" if policies is None else ACL_INFO.dumps(shown_acl(name, policies)))

    def list_acls(self, connection: Connection, command: Command) -> Command:
        """Return policies by parts of subjects and resources (3010); no body when there are none."""
        fields = command.fields
        found = listed(self._store.table.acls, fields.get("subjectFilter", ""), fields.get("resourceFilter", ""))
        return command.reply(SUCCESS, body=dump_list(ACL_INFO, found))

    def by_super(self, connection: Connection, command: Command) -> bool:
        """Whether the sender is a super user. Without authentication every sender counts as one.

        RocketMQ treats a request without `AccessKey` as a super user's, and trusts any `AccessKey` when the code is on
        the white list.
        """
        rules = self._store.rules
        if not rules.switches.any:
            return True
        try:
            return rules.is_admin(rules.identify(access_request(connection, command)).account)
        except AccessDenied:
            return False


def _guard_super(table: UserTable, username: str, by_super: bool) -> None:
    user = table.users.get(username)
    if user is not None and user.type is UserType.SUPER and not by_super:
        raise refused("The super user can only be update by super user")


def _wants_super(info: UserInfo) -> bool:
    return named(UserType, info.user_type, "userType") is UserType.SUPER


def _username(command: Command) -> str:
    username = command.fields.get("username", "")
    if not username.strip():
        raise invalid("The username is blank")
    return username


def _subject(command: Command) -> str:
    text = command.fields.get("subject", "")
    name = subject_name(text)
    if name is None:
        raise refused("The subject is null.") if not text else invalid(f"subject {shown(text)}: expected User:NAME")
    return name


def _user(command: Command) -> UserInfo:
    username = command.fields.get("username", "")
    if not username:
        raise invalid("The username is blank")
    info = _loaded(USER_INFO, command)
    if info is None:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, "The body of user is null")
    info.username = username
    named(UserStatus, info.user_status, "userStatus")
    return info


def _loaded(bean: Bean[T], command: Command) -> T | None:
    """Return the value of a body; None without a body. Errors do not show the content, as it may be a password."""
    if len(command.body) > ACCESS_BODY.default:
        raise ACCESS_BODY.error(len(command.body), ACCESS_BODY.default)
    if not command.body:
        return None
    body = bytes(command.body)
    check_objects(body)
    try:
        return bean.loads(body)
    except ProtocolError as error:
        what = str(error) if bean is not USER_INFO else "is no user in JSON"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the body cannot be read: {shown(what)}") from None
