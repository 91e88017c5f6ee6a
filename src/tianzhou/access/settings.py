"""Settings of users and policies under RocketMQ 5.3's keys, for brokers and name servers (broker.md §22.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou import limits
from tianzhou.access.user_rules import AccessSwitches, read_codes
from tianzhou.errors import ConfigError
from tianzhou.setting_rules import SettingProblem
from tianzhou.settings import MASK, secret

_PACKAGE: Final = "org.apache.rocketmq.auth"
PROVIDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "authenticationProvider": (f"{_PACKAGE}.authentication.provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",),
    "authenticationStrategy": (
        f"{_PACKAGE}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_PACKAGE}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_PACKAGE}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",),
    "authorizationStrategy": (
        f"{_PACKAGE}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_PACKAGE}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}
"""RocketMQ's own classes that a key may name. All of them select this implementation."""

IGNORED: Final[dict[str, tuple[str, ...]]] = {
    "there is one way to check users and policies; classes of RocketMQ's own are accepted, others refused": tuple(
        key for key in PROVIDERS if key != "authenticationMetadataProvider"
    ),
    "users and policies are in memory as a whole, and a decision counts until they change": (
        "userCacheMaxNum", "userCacheExpiredSecond", "userCacheRefreshSecond", "aclCacheMaxNum",
        "aclCacheExpiredSecond", "aclCacheRefreshSecond", "statefulAuthenticationCacheMaxNum",
        "statefulAuthenticationCacheExpiredSecond", "statefulAuthorizationCacheMaxNum",
        "statefulAuthorizationCacheExpiredSecond",
    ),
}  # fmt: skip
"""Accepted keys without effect, by reason."""

FIXED: Final = (
    "aclEnable", "aclConfigPath", "authConfigPath", "authenticationEnabled", "authenticationWhitelist",
    "authorizationEnabled", "authorizationWhitelist", "initAuthenticationUser", "innerClientAuthenticationCredentials",
    "migrateAuthFromV1Enabled", "authenticationMetadataProvider", *(key for keys in IGNORED.values() for key in keys),
)  # fmt: skip
"""Keys that no request may change."""


UNAUTHENTICATED: Final = "needs authenticationEnabled=true: otherwise anybody could name any user"
"""Why policies without authentication are rejected."""


@dataclass
class AuthSettings:
    """Settings of access control: by accounts of 4.x (the first keys), and by users and policies.

    `aclConfigPath` is a key of Tianzhou: the path of `plain_acl.yml`. Its default is `conf/plain_acl.yml` in
    `rocketmqHome`, or without `rocketmqHome` the folder of the server's other state files. An empty `authConfigPath`
    means that folder, too. The keys below the comment have no effect; `IGNORED` has the reasons.
    """

    acl_enable: bool = False
    acl_config_path: str = ""
    rocketmq_home: str = ""
    auth_config_path: str = ""
    authentication_enabled: bool = False
    authentication_whitelist: str = ""
    authorization_enabled: bool = False
    authorization_whitelist: str = ""
    init_authentication_user: str = secret("")
    inner_client_authentication_credentials: str = secret("")
    migrate_auth_from_v1_enabled: bool = False
    max_users: int = limits.USERS.default
    max_policy_entries: int = limits.POLICY_ENTRIES.default

    # Accepted for compatibility with existing files and tools.
    authentication_provider: str = ""
    authentication_metadata_provider: str = ""
    authentication_strategy: str = ""
    authorization_provider: str = ""
    authorization_metadata_provider: str = ""
    authorization_strategy: str = ""
    user_cache_max_num: int = 1000
    user_cache_expired_second: int = 600
    user_cache_refresh_second: int = 60
    acl_cache_max_num: int = 1000
    acl_cache_expired_second: int = 600
    acl_cache_refresh_second: int = 60
    stateful_authentication_cache_max_num: int = 10_000
    stateful_authentication_cache_expired_second: int = 60
    stateful_authorization_cache_max_num: int = 10_000
    stateful_authorization_cache_expired_second: int = 60

    @property
    def access_switches(self) -> AccessSwitches:
        """Which checks are enabled.

        Raises:
            ValueError: a white list contains a text other than a number.
        """
        return AccessSwitches(
            self.authentication_enabled,
            self.authorization_enabled,
            read_codes(self.authentication_whitelist),
            read_codes(self.authorization_whitelist),
        )

    @property
    def keeps_users(self) -> bool:
        """Whether users and policies can be prepared while no check uses them, as with Apache's brokers."""
        return bool(self.authentication_metadata_provider.strip())

    @property
    def init_user(self) -> tuple[str, str] | None:
        """Name and password of the super user that the server creates at its start if it does not exist.

        Raises:
            ConfigError: the value is invalid; the text does not show it.
        """
        return read_credentials("initAuthenticationUser", self.init_authentication_user, "username", "password")

    @property
    def inner_credentials(self) -> tuple[str, str] | None:
        """Name and password that sign the server's own requests to other servers of the cluster.

        Raises:
            ConfigError: the value is invalid; the text does not show it.
        """
        key, text = "innerClientAuthenticationCredentials", self.inner_client_authentication_credentials
        return read_credentials(key, text, "accessKey", "secretKey")


def read_credentials(key: str, text: str, name: str, password: str) -> tuple[str, str] | None:
    """Return name and password of a JSON object; None for an empty text.

    Args:
        key: name of the setting, for the error.
        text: value of the setting.
        name: member with the name.
        password: member with the password.

    Raises:
        ConfigError: the value is invalid; the text does not show it.
    """
    if not text.strip():
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    values = (found.get(name), found.get(password)) if isinstance(found, dict) else (None, None)
    if not all(isinstance(value, str) and value.strip() for value in values):
        raise ConfigError(f'{key}={MASK}: expected {{"{name}":"…","{password}":"…"}}')
    return str(values[0]), str(values[1])


def auth_problems(values: Mapping[str, str]) -> Iterator[SettingProblem]:
    """Yield the invalid values among a server's settings, given as text by key. Secrets are not shown."""
    for key, classes in PROVIDERS.items():
        if values[key].strip() and values[key].strip() not in classes:
            yield SettingProblem(
                key, values[key], f"expected nothing or {' or '.join(classes)}; other classes cannot be run"
            )
    if values["authorizationEnabled"] == "true" and values["authenticationEnabled"] != "true":
        yield SettingProblem("authorizationEnabled", "true", UNAUTHENTICATED)
    for key in ("authenticationWhitelist", "authorizationWhitelist"):
        try:
            read_codes(values[key])
        except ValueError as error:
            yield SettingProblem(key, values[key], str(error))
    for key, names in (
        ("initAuthenticationUser", ("username", "password")),
        ("innerClientAuthenticationCredentials", ("accessKey", "secretKey")),
    ):
        try:
            read_credentials(key, values[key], *names)
        except ConfigError:
            yield SettingProblem(key, MASK, f'expected {{"{names[0]}":"…","{names[1]}":"…"}}')
