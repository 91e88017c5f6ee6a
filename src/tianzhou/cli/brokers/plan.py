"""The number of brokers for a folder, and their ports. Pure: a function checks whether a port is free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from tianzhou.broker.addresses import FAST_PORT_BELOW
from tianzhou.errors import ConfigError

MOST_BROKERS: Final = 64
AUTO: Final = "auto"
_LAST_PORT: Final = 65_535


def broker_count(option: str | None, present: int, cores: int) -> int:
    """Return the number of brokers to start.

    Args:
        option: the value of `--brokers`; None without it.
        present: number of brokers whose stores are in the folder.
        cores: number of processors.

    Raises:
        ConfigError: the option is not a number, or is out of range.
    """
    if option is None:
        return present
    if option == AUTO:
        # Serve all stores of a folder that comes from a larger machine.
        return min(max(cores, present), MOST_BROKERS)
    if not option.isascii() or not option.isdigit() or not 1 <= int(option) <= MOST_BROKERS:
        raise ConfigError(
            f"--brokers {option}: expected a whole number from 1 to {MOST_BROKERS}, or {AUTO} for one per core"
        )
    return int(option)


def ports_of(port: int) -> tuple[int, int, int]:
    """Return the ports of a broker: its main port, its fast port, and the replication port that tools report."""
    return port, port - FAST_PORT_BELOW, port + 1


def plan_ports(
    names: Sequence[str],
    base: int,
    *,
    saved: Mapping[str, int],
    taken: Collection[int],
    is_free: Callable[[int], bool],
    ports_of: Callable[[int], tuple[int, ...]] = ports_of,
    must_be_free: int = 2,
) -> dict[str, int]:
    """Return a port for each broker: its former port, or the first free one above the base.

    The first broker has the base.

    Args:
        names: the brokers.
        base: the value of `--broker-port`.
        saved: the ports of the last run. They count if its base was the same.
        taken: ports of the same server that do not belong to a broker.
        is_free: whether no process listens on a port. It is called only for new brokers, because a former port belongs
            to its broker.
        ports_of: returns the ports of a broker, with the indispensable ones first.
        must_be_free: number of these ports that are checked.

    Raises:
        ConfigError: there are not enough ports above the base.
    """
    used = set(taken)
    planned: dict[str, int] = {}

    def take(name: str, port: int) -> None:
        planned[name] = port
        used.update(ports_of(port))

    first, *others = names
    take(first, base)
    if saved.get(first) == base:
        for name in others:
            port = saved.get(name)
            if port is not None and port > base and used.isdisjoint(ports_of(port)):
                take(name, port)
    candidate = base
    for name in others:
        while name not in planned:
            candidate += 1
            if candidate >= _LAST_PORT:
                raise ConfigError(
                    f"--broker-port {base}: no free ports above it for {len(names)} brokers; give a lower one"
                )
            if used.isdisjoint(ports_of(candidate)) and all(map(is_free, ports_of(candidate)[:must_be_free])):
                take(name, candidate)
    return {name: planned[name] for name in names}
