"""Accounts of RocketMQ 4.x: changed (50, 51, 53), shown (54), and the versions of their files (52) (wire.md §11.3)."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from tianzhou.access.plain_config import Account
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model import DataVersion
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.gates.plain_files import PlainFiles
from tianzhou.settings import MASK
from tianzhou.wire.bodies.access import PLAIN_ACCOUNTS, PlainAccountInfo, PlainAccounts
from tianzhou.wire.bodies.topics import LEGACY_DATA_VERSION
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

# Codes of 4.9, which have other names in 5.x (wire.md §11.3).
UPDATE_FAILED: Final = 209
DELETE_FAILED: Final = 210
WHITE_LIST_FAILED: Final = 211


class AccessConfigHandler(Handler):
    """Handler that changes the files of access control; no answer contains a secret.

    Args:
        services: the broker's services.
        files: the rules and their files.
    """

    def __init__(self, services: Services, files: PlainFiles) -> None:
        super().__init__(services)
        self._files = files

    @serves(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
    async def update(self, connection: Connection, command: Command) -> Reply:
        """Change or create an account; omitted fields except `admin` are unchanged, as in RocketMQ."""
        header = read_header(command)
        values = {
            "secret_key": header.secret_key or None,
            "white_remote_address": header.white_remote_address,
            "admin": bool(header.admin),
            "default_topic_perm": header.default_topic_perm or None,
            "default_group_perm": header.default_group_perm or None,
            "topic_perms": _split(header.topic_perms),
            "group_perms": _split(header.group_perms),
        }
        given = {name: value for name, value in values.items() if value is not None}

        def changed(account: Account) -> Account:
            return msgspec.structs.replace(account, **given)

        try:
            await self._files.update_account(header.access_key, changed)
        except (ConfigError, OSError) as error:
            raise BrokerError(UPDATE_FAILED, str(error)) from error
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.DELETE_ACL_CONFIG)
    async def delete(self, connection: Connection, command: Command) -> Reply:
        """Delete an account; refuse to delete the last one."""
        access_key = read_header(command).access_key
        try:
            deleted = await self._files.delete_account(access_key)
        except (ConfigError, OSError) as error:
            raise BrokerError(DELETE_FAILED, str(error)) from error
        if not deleted:
            text = f"The accessKey[{access_key}] corresponding to accessConfig has been deleted failed."
            raise BrokerError(DELETE_FAILED, text)
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
    async def update_white_list(self, connection: Connection, command: Command) -> Reply:
        """Replace the global white list of `plain_acl.yml`, or of the named file."""
        header = read_header(command)
        patterns = _split(header.global_white_addrs) or ()
        try:
            updated = await self._files.update_white_list(patterns, header.acl_file_full_path or "")
        except (ConfigError, OSError) as error:
            raise BrokerError(WHITE_LIST_FAILED, str(error)) from error
        if not updated:
            text = f"The globalWhiteAddresses[{header.global_white_addrs}] has been updated failed."
            raise BrokerError(WHITE_LIST_FAILED, text)
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    def versions(self, connection: Connection, command: Command) -> Reply:
        """Return the versions of all files, and that of `plain_acl.yml`."""
        versions = self._files.versions()
        settings = self._tables.settings
        fields = write_reply(
            command.code,
            version=_dumped(versions.get(str(self._files.file), DataVersion())),
            all_acl_file_version=json.dumps({path: json.loads(_dumped(one)) for path, one in versions.items()}),
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.broker_cluster_name,
        )
        return command.reply(ResponseCode.SUCCESS, None, fields)

    @serves(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    def accounts(self, connection: Connection, command: Command) -> Reply:
        """Return white lists and accounts of all files, each access key once; mask secrets, which RocketMQ shows."""
        configs = self._files.configs.values()
        found: dict[str, PlainAccountInfo] = {}
        for account in (account for config in configs for account in config.accounts):
            found.setdefault(account.access_key, _shown(account))
        white = [pattern for config in configs for pattern in config.global_white_remote_addresses]
        return command.reply(ResponseCode.SUCCESS, body=PLAIN_ACCOUNTS.dumps(PlainAccounts(white, [*found.values()])))


def _shown(account: Account) -> PlainAccountInfo:
    return PlainAccountInfo(
        account.access_key,
        MASK,
        account.white_remote_address,
        account.admin,
        account.default_topic_perm,
        account.default_group_perm,
        list(account.topic_perms),
        list(account.group_perms),
    )


def _split(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(one for one in text.split(",") if one)


def _dumped(version: DataVersion) -> str:
    return LEGACY_DATA_VERSION.dumps(version).decode()
