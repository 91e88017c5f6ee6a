"""Rules of a name server's settings: valid ranges, and the settings that may change while it runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tianzhou.access.settings import FIXED as FIXED_OF_ACCESS
from tianzhou.access.settings import auth_problems
from tianzhou.errors import ConfigError
from tianzhou.limits import LIMITS
from tianzhou.metrics.settings import CHOICES as CHOICES_OF_METRICS
from tianzhou.metrics.settings import FIXED as FIXED_OF_METRICS
from tianzhou.metrics.settings import RANGES as RANGES_OF_METRICS
from tianzhou.metrics.settings import metrics_problems
from tianzhou.namesrv.settings import IGNORED
from tianzhou.remoting.gates.page_gate import KEY as METRICS_KEY
from tianzhou.remoting.gates.page_gate import parse_addresses
from tianzhou.remoting.gates.peer_addresses import KEY, TrustedProxies
from tianzhou.setting_rules import INT_MAX, Rules, SettingProblem, level_problems

FIXED: Final[dict[str, tuple[str, ...]]] = {
    "where it is reached is settled at its start": ("bindAddress", "listenPort"),
    "a path is never taken from a request": ("kvConfigPath", "configStorePath", "rocketmqHome"),
    "who is let in is never taken from a request": (
        "configBlackList",
        "enableRemoteAdmin",
        "proxyProtocolTrusted",
        "requireSignedLookups",
        *FIXED_OF_ACCESS,
    ),
    "whose routes it hands on is never taken from a request": ("clusterTest", "productEnvName"),
    "this version has no controller": ("enableControllerInNamesrv",),
    "where metrics go, and who may see them, is never taken from a request": FIXED_OF_METRICS,
    "it is read at the start only": ("serverChannelMaxIdleTimeSeconds",),
}
"""Keys that may not change while the name server runs, by reason."""

_LIMITS: Final = frozenset(
    name
    for name, limit in LIMITS.items()
    if not limit.fixed and limit.server in ("name server", "both") and name not in FIXED["it is read at the start only"]
)

AT_ONCE: Final = _LIMITS | frozenset(
    {
        "orderMessageEnable", "returnOrderTopicConfigToBroker", "scanNotActiveBrokerInterval", "supportActingMaster",
        "notifyMinBrokerIdChanged", "enableTopicList", "enableAllTopicList", "deleteTopicWithBrokerRegistration",
        "needWaitForService", "waitSecondsForService", "logLevels",
    }
)  # fmt: skip
"""Keys whose changes take effect at once."""


def across(values: Mapping[str, str]) -> Iterable[SettingProblem]:
    """Yield the invalid values of settings with a format of their own."""
    try:
        TrustedProxies.parse(values[KEY])
    except ConfigError as error:
        yield SettingProblem(KEY, values[KEY], str(error).partition(": ")[2])
    yield from auth_problems(values)
    yield from (SettingProblem(*problem) for problem in metrics_problems(values))
    try:
        parse_addresses(values[METRICS_KEY])
    except ConfigError as error:
        yield SettingProblem(METRICS_KEY, values[METRICS_KEY], str(error).partition(": ")[2])
    yield from level_problems(values)


RULES: Final = Rules(
    "name server",
    AT_ONCE | {key for keys in IGNORED.values() for key in keys} - {key for keys in FIXED.values() for key in keys},
    FIXED,
    {
        **dict.fromkeys(sorted(_LIMITS), (1, INT_MAX)),
        "listenPort": (0, 65_535),
        "scanNotActiveBrokerInterval": (10, INT_MAX),
        "waitSecondsForService": (0, INT_MAX),
        "serverChannelMaxIdleTimeSeconds": (1, INT_MAX),
        **RANGES_OF_METRICS,
    },
    CHOICES_OF_METRICS,
    across=across,
)
"""Rules of a name server's settings."""
