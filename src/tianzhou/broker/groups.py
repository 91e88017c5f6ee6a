"""The table of consumer groups (broker.md §15.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tianzhou.broker.topics import group_name_problem
from tianzhou.model import DataVersion, SubscriptionGroupConfig, names

SYSTEM_PREFIX = "CID_RMQ_SYS_"
FORBIDDEN_READ = 2
"""Bit of the forbidden table that says a group may not read a topic (store.md §15.4)."""

BUILT_IN = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


class GroupTable:
    """All consumer groups of this broker.

    Args:
        auto_create: whether a group comes to be when it is first used.
        create_system: the same for groups whose name starts with CID_RMQ_SYS_.
        now_ms: stamp of the table's first version.
        light: every name of a light queue (`%LMQ%…`) is a group, too; such groups are not kept (store.md §7).

    Attributes:
        version: changes with every change of the table.
        forbidden: group to topic to bits; see `FORBIDDEN_READ`.
        listeners: called after each change.
    """

    def __init__(
        self, *, auto_create: bool = True, create_system: bool = True, now_ms: int = 0, light: bool = False
    ) -> None:
        self._light = light
        self.auto_create = auto_create
        self.create_system = create_system
        self.version = DataVersion(0, now_ms)
        self.forbidden: dict[str, dict[str, int]] = {}
        self.listeners: list[Callable[[], None]] = []
        self._groups = {name: SubscriptionGroupConfig(name) for name in BUILT_IN}

    def __contains__(self, group: str) -> bool:
        return group in self._groups or self._is_light(group)

    def _is_light(self, group: str) -> bool:
        return self._light and group.startswith(names.LMQ_PREFIX)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """A group's configuration, None when it is not there."""
        found = self._groups.get(group)
        return SubscriptionGroupConfig(group) if found is None and self._is_light(group) else found

    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        """The whole table; not to be changed."""
        return self._groups

    def is_built_in(self, group: str) -> bool:
        """Whether the group is there from the start."""
        return group in BUILT_IN

    def find(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """A group's configuration, created with defaults when that is allowed; None otherwise."""
        found = self.get(group)
        if found is not None:
            return found
        allowed = self.auto_create or (self.create_system and group.startswith(SYSTEM_PREFIX))
        if not allowed or group_name_problem(group) is not None:
            return None
        found = SubscriptionGroupConfig(group)
        self.put(found, now_ms)
        return found

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> bool:
        """Create or replace a group; False when it is already exactly so."""
        return bool(self.put_all([config], now_ms))

    def put_all(self, configs: Iterable[SubscriptionGroupConfig], now_ms: int) -> list[str]:
        """Create or replace several groups as one change; returns the names that changed."""
        changed = []
        for config in configs:
            if self._groups.get(config.group_name) != config and not self._is_light(config.group_name):
                self._groups[config.group_name] = config
                changed.append(config.group_name)
        if changed:
            self._changed(now_ms)
        return changed

    def delete(self, group: str, now_ms: int) -> bool:
        """Remove a group and what it was forbidden; False when it was not there."""
        self.forbidden.pop(group, None)
        if self._groups.pop(group, None) is None:
            return False
        self._changed(now_ms)
        return True

    def may_read(self, group: str, topic: str) -> bool:
        """Whether the forbidden table leaves the group its reading of the topic."""
        return not self.forbidden.get(group, {}).get(topic, 0) & 1 << FORBIDDEN_READ

    def set_readable(self, group: str, topic: str, readable: bool, now_ms: int) -> None:
        """Forbid a group to read a topic, or allow it again (request 353)."""
        topics = self.forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        bits = bits & ~(1 << FORBIDDEN_READ) if readable else bits | 1 << FORBIDDEN_READ
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
            if not topics:
                del self.forbidden[group]
        self._changed(now_ms)

    def load(
        self,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> None:
        """Take over a stored table."""
        self._groups.update(groups)
        self.forbidden = {group: dict(topics) for group, topics in forbidden.items()}
        self.version = version

    def _changed(self, now_ms: int) -> None:
        self.version = self.version.next(now_ms)
        for listener in self.listeners:
            listener()
