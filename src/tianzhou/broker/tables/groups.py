"""The table of consumer groups (broker.md §15.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tianzhou.errors import ProtocolError
from tianzhou.limits import FORBIDDEN, GROUP_CONFIG, GROUP_CONFIGS, GROUPS, QUEUES_OF_TOPIC, Bounds
from tianzhou.model import DataVersion, SubscriptionGroupConfig, names
from tianzhou.model.name_rules import group_name_problem, light_queue_problem
from tianzhou.wire.json_dialect import dumps_plain

SYSTEM_PREFIX = "CID_RMQ_SYS_"
FORBIDDEN_READ = 2
"""Number of the bit in the forbidden table that forbids reading a topic (store.md §15.4)."""

PLAIN_SIZE = 512
"""Bytes of a configuration without its name and its members of variable size."""

_USUAL_POLICY = SubscriptionGroupConfig("").group_retry_policy

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
        auto_create: whether the first use of a group creates it.
        create_system: whether the first use creates a group whose name starts with CID_RMQ_SYS_.
        now_ms: stamp of the table's first version.
        light: whether each name of a light queue (`%LMQ%…`) is also a group; such groups are not stored (store.md §7).
        bounds: limits of the number and size of groups, and of entries of the forbidden table.

    Attributes:
        size: bytes of all configurations.
        version: changes with every change of the table.
        forbidden: group to topic to bits; see `FORBIDDEN_READ`.
        listeners: callbacks after each change.
    """

    def __init__(
        self,
        *,
        auto_create: bool = True,
        create_system: bool = True,
        now_ms: int = 0,
        light: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self._light = light
        self._bounds = bounds or Bounds()
        self.auto_create = auto_create
        self.create_system = create_system
        self.version = DataVersion(0, now_ms)
        self.forbidden: dict[str, dict[str, int]] = {}
        self.listeners: list[Callable[[], None]] = []
        self._groups = {name: SubscriptionGroupConfig(name) for name in BUILT_IN}
        self.size = sum(map(_size, self._groups.values()))

    def __contains__(self, group: str) -> bool:
        return group in self._groups or self._is_light(group)

    def _is_light(self, group: str) -> bool:
        return self._light and group.startswith(names.LMQ_PREFIX) and light_queue_problem(group) is None

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's configuration, None when there is no such group."""
        found = self._groups.get(group)
        return SubscriptionGroupConfig(group) if found is None and self._is_light(group) else found

    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        """Return the complete table; read-only."""
        return self._groups

    def may_be(self, group: str) -> bool:
        """Whether a group exists or its first use would create it."""
        if group in self:
            return True
        allowed = self.auto_create or (self.create_system and group.startswith(SYSTEM_PREFIX))
        return allowed and group_name_problem(group) is None

    def find(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """Return a group's configuration; create a missing group with defaults if allowed, else return None.

        Raises:
            LimitExceeded: there are too many groups.
        """
        found = self.get(group)
        if found is not None:
            return found
        if not self.may_be(group):
            return None
        found = SubscriptionGroupConfig(group)
        self.put(found, now_ms)
        return found

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> bool:
        """Create or replace a group; return False when it has this configuration already."""
        return bool(self.put_all([config], now_ms))

    def put_all(self, configs: Iterable[SubscriptionGroupConfig], now_ms: int, *, bounded: bool = True) -> list[str]:
        """Create or replace several groups as one change; return the changed names.

        Args:
            configs: the groups.
            now_ms: stamp of the change.
            bounded: whether the limits apply; they do not apply to groups that the leader of the broker group has
                accepted.

        Raises:
            LimitExceeded: there would be too many groups, or they would be too large; none of them was changed.
        """
        fresh = {
            config.group_name: config
            for config in configs
            if self._groups.get(config.group_name) != config and not self._is_light(config.group_name)
        }
        changed = list(fresh)
        new = [name for name in changed if name not in self._groups]
        if new and bounded:
            self._bounds.check(GROUPS, len(self._groups) + len(new), f"group {new[0]}")
        former = [self._groups[name] for name in changed if name in self._groups]
        more = sum(map(_size, fresh.values())) - sum(map(_size, former))
        if more > 0 and bounded:
            self._bounds.check(GROUP_CONFIGS, self.size + more, f"configurations of all groups, with {changed[0]}")
        self.size += more
        self._groups.update(fresh)
        if changed:
            self._changed(now_ms)
        return changed

    def delete(self, group: str, now_ms: int) -> bool:
        """Remove a group and its forbidden topics; return False when it did not exist."""
        self.forbidden.pop(group, None)
        gone = self._groups.pop(group, None)
        if gone is None:
            return False
        self.size -= _size(gone)
        self._changed(now_ms)
        return True

    def may_read(self, group: str, topic: str) -> bool:
        """Whether the forbidden table allows the group to read the topic."""
        return not self.forbidden.get(group, {}).get(topic, 0) & 1 << FORBIDDEN_READ

    def set_readable(self, group: str, topic: str, readable: bool, now_ms: int) -> None:
        """Forbid a group to read a topic, or allow it again (request 353).

        Raises:
            LimitExceeded: there are too many entries.
        """
        before = self.forbidden.get(group, {}).get(topic, 0)
        bits = before & ~(1 << FORBIDDEN_READ) if readable else before | 1 << FORBIDDEN_READ
        if bits and not before:
            count = sum(map(len, self.forbidden.values())) + 1
            self._bounds.check(FORBIDDEN, count, f"topic {topic} forbidden to group {group}")
        topics = self.forbidden.setdefault(group, {})
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
            if not topics:
                del self.forbidden[group]
        self._changed(now_ms)

    def merge_forbidden(
        self, found: Mapping[str, Mapping[str, int]], gone: Iterable[tuple[str, str]], now_ms: int
    ) -> None:
        """Add the entries of another broker's forbidden table, and remove some.

        Args:
            found: group to topic to bits.
            gone: groups and topics whose entry is removed.
            now_ms: stamp of the change.
        """
        merged = {group: dict(topics) for group, topics in self.forbidden.items()}
        for group, topics in found.items():
            merged.setdefault(group, {}).update(topics)
        for group, topic in gone:
            merged.get(group, {}).pop(topic, None)
        merged = {group: topics for group, topics in merged.items() if topics}
        if merged != self.forbidden:
            self.forbidden = merged
            self._changed(now_ms)

    def set_forbidden(self, found: Mapping[str, Mapping[str, int]], gone: Iterable[str], now_ms: int) -> None:
        """Replace the forbidden topics of some groups.

        Args:
            found: group to topic to bits.
            gone: groups without forbidden topics.
            now_ms: stamp of the change.
        """
        self.forbidden.update({group: dict(topics) for group, topics in found.items()})
        for group in gone:
            self.forbidden.pop(group, None)
        self._changed(now_ms)

    def load(
        self,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> list[str]:
        """Load a stored table.

        Returns:
            Groups that had too many retry queues and are cut to the limit.
        """
        most = max(QUEUES_OF_TOPIC.default, self._bounds.most(QUEUES_OF_TOPIC))
        cut = [name for name, config in groups.items() if config.retry_queue_nums > most]
        self._groups.update(groups)
        for name in cut:
            self._groups[name] = replace(self._groups[name], retry_queue_nums=most)
        self.size = sum(map(_size, self._groups.values()))
        self.forbidden = {group: dict(topics) for group, topics in forbidden.items()}
        self.version = version
        return cut

    def _changed(self, now_ms: int) -> None:
        self.version = self.version.next(now_ms)
        for listener in self.listeners:
            listener()


def is_plain(config: SubscriptionGroupConfig) -> bool:
    """Whether only the name of a configuration has a variable size."""
    policy = config.group_retry_policy
    return not config.attributes and not config.subscription_data_set and (not policy or policy == _USUAL_POLICY)


def _size(config: SubscriptionGroupConfig) -> int:
    """Return the approximate bytes of a configuration."""
    size = PLAIN_SIZE + len(config.group_name)
    if is_plain(config):
        return size
    try:
        return size + len(dumps_plain((config.attributes, config.group_retry_policy, config.subscription_data_set)))
    except ProtocolError:  # nested too deeply to encode; no request contains such a configuration
        return size + GROUP_CONFIG.default
