"""The data folder of `tianzhou serve --data`: its layout and its stores (docs/adr/0005-serve-folder.md).

The first broker's store is `store/`. With `--brokers N`, each other broker has a folder with a store in it. With
`--replicas N`, the members of the group have `n0/store/`, `n1/store/` and so on.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tianzhou.errors import ConfigError
from tianzhou.file_modes import make_folders, write_file

LAYOUT = 1
"""Layout of a folder with the store of one broker."""
LAYOUT_OF_SEVERAL = 2
"""Layout of a folder with the stores of several brokers. A version that supports only one broker must not serve it."""
LAYOUT_OF_GROUP = 3
"""Layout of a folder with the stores of a group's members. Each member's store is a copy of all messages."""
MARK = "tianzhou.json"
FIRST_BROKER = "broker-a"
_PREFIX = "broker-"
_MEMBER = "n"
_OUR_ENTRIES = frozenset(
    {"store", "namesrv", "console", "broker.conf", "broker.conf.bak", "lost+found", "plain_acl.yml", "acl"}
)


def broker_name(index: int) -> str:
    """Return a broker's name by its index, from 0: `broker-a` to `broker-z`, then `broker-aa` and so on."""
    suffix = ""
    number = index + 1
    while number:
        number, letter = divmod(number - 1, 26)
        suffix = string.ascii_lowercase[letter] + suffix
    return _PREFIX + suffix


def broker_index(name: str) -> int | None:
    """Return the index of a broker's name; None when the name has another form."""
    suffix = name.removeprefix(_PREFIX)
    if suffix == name or not suffix or len(suffix) > 3 or not set(suffix) <= set(string.ascii_lowercase):
        return None
    number = 0
    for letter in suffix:
        number = number * 26 + string.ascii_lowercase.index(letter) + 1
    return number - 1


def home_of(data: Path, name: str) -> Path:
    """Return the folder of a broker's store and configuration."""
    return data if name == FIRST_BROKER else data / name


def brokers_in(data: Path) -> list[str]:
    """Return the names of the brokers with a store in the folder, in order; empty when the folder does not exist."""
    found = [0] if (data / "store").is_dir() else []
    if data.is_dir():
        for entry in data.iterdir():
            index = broker_index(entry.name)
            if index and (entry / "store").is_dir():
                found.append(index)
    return [broker_name(index) for index in sorted(found)]


def count_in(data: Path) -> int:
    """Return the number of brokers that serve every store in the folder; 1 for a new folder."""
    return max([broker_index(name) or 0 for name in brokers_in(data)], default=0) + 1


def stores_in(folder: Path) -> list[Path]:
    """Return the stores in a folder of `tianzhou serve`. Any other folder counts as a store itself."""
    if not (folder / MARK).exists():
        return [folder]
    members = [member_home(folder, name) / "store" for name in member_names(members_in(folder))]
    return members or [home_of(folder, name) / "store" for name in brokers_in(folder)] or [folder / "store"]


def which_of(folder: Path, stores: Sequence[Path]) -> str:
    """Return a message for users who have to choose one of several stores."""
    return f"{folder}: holds the stores of {len(stores)} brokers; name one: {', '.join(map(str, stores))}"


def member_names(count: int) -> list[str]:
    """Return the names of a group's members in the form of RocketMQ's `dLegerSelfId`: `n0`, `n1` and so on."""
    return [f"{_MEMBER}{index}" for index in range(count)]


def member_home(data: Path, name: str) -> Path:
    """Return the folder of a member's store and configuration."""
    return data / name


def members_in(data: Path) -> int:
    """Return the number of members of the group in the folder; 0 when the folder has no group.

    Raises:
        ConfigError: the folder's mark cannot be read.
    """
    if not (data / MARK).exists():
        return 0
    found = _read(data)
    if found["layout"] != LAYOUT_OF_GROUP:
        return 0
    members = found.get("members")
    if not isinstance(members, int) or not 0 < members < 100:
        raise ConfigError(
            f'--data {data}: its {MARK} is damaged; write {{"layout": {LAYOUT_OF_GROUP}, "members": N}} into it, N '
            "being the number of folders n0, n1 and so on, or give another folder"
        )
    return members


def claim_group(data: Path, members: int) -> None:
    """Initialise a data folder for a group, or check an existing one. Reject a folder with other content.

    Args:
        data: the folder.
        members: number of members in the group.

    Raises:
        ConfigError: the folder cannot be used; the text has the cause and the remedy.
    """
    before = members_in(data)
    if before == members:
        return
    if before:
        raise ConfigError(
            f"--replicas {members}: --data {data} holds a group of {before} members, whose number does not change; "
            f"give --replicas {before}, or another folder"
        )
    if brokers_in(data):
        raise ConfigError(
            f"--replicas {members}: --data {data} holds the messages of single brokers, which a group does not take "
            "over; give a new folder (docs/howto/from-a-pair-to-a-group.md has the way for messages that are there)"
        )
    claim(data)
    _write(data, {"layout": LAYOUT_OF_GROUP, "members": members})


def claim(data: Path, brokers: int = 1) -> None:
    """Initialise a data folder, or check an existing one. Reject a folder with other content.

    Args:
        data: the folder.
        brokers: number of brokers that will serve it.

    Raises:
        ConfigError: the folder cannot be used; the text has the cause and the remedy.
    """
    try:
        make_folders(data)
        if not (data / MARK).exists():
            _check_new(data)
        elif members := members_in(data):
            raise ConfigError(
                f"--data {data}: holds a group of {members} members, of which no single broker may serve one; give "
                f"--replicas {members}, or another folder"
            )
        _check_all_served(data, brokers)
        if brokers > 1 or not (data / MARK).exists():
            _write(data, {"layout": LAYOUT_OF_SEVERAL if brokers > 1 else LAYOUT})
    except FileExistsError:
        raise ConfigError(f"--data {data}: is no folder; give an empty or a new one") from None
    except OSError as error:
        raise ConfigError(
            f"--data {data}: cannot be used ({error.strerror}); give a folder this user can write to"
        ) from error


def saved_ports(data: Path) -> dict[str, int]:
    """Return the last used ports of the folder's brokers, by name.

    Raises:
        ConfigError: the folder's mark cannot be read.
    """
    found = _read(data).get("ports", {})
    entries = found.items() if isinstance(found, dict) else ()
    return {str(name): port for name, port in entries if isinstance(port, int)}


def save_ports(data: Path, ports: Mapping[str, int]) -> None:
    """Save the brokers' ports for the next start.

    Raises:
        ConfigError: the folder's mark cannot be read.
    """
    if saved_ports(data) != dict(ports):
        _write(data, {"ports": dict(ports)})


def _check_new(data: Path) -> None:
    foreign = sorted(
        entry.name for entry in data.iterdir() if entry.name not in _OUR_ENTRIES and not entry.name.startswith(".")
    )
    if "commitlog" in foreign and (data.parent / MARK).exists():
        raise ConfigError(f"--data {data}: is the store of the data folder {data.parent}; give that one")
    if "commitlog" in foreign:
        raise ConfigError(
            f"--data {data}: is itself a store of RocketMQ; move it to {data}/store, or run `tianzhou broker` with "
            f"storePathRootDir={data}"
        )
    # A folder with a store in it comes from RocketMQ, and may have RocketMQ's logs beside the store.
    if foreign and not (data / "store").is_dir():
        raise ConfigError(
            f"--data {data}: holds things that are not the server's ({', '.join(foreign[:3])}); "
            "give an empty or a new folder"
        )


def _check_all_served(data: Path, brokers: int) -> None:
    left = [name for name in brokers_in(data) if (broker_index(name) or 0) >= brokers]
    if left:
        whose = " and ".join(left)
        folders = " and ".join(str(home_of(data, name)) for name in left)
        raise ConfigError(
            f"--brokers {brokers}: --data {data} also holds messages of {whose}, which nobody would serve; give "
            f"--brokers {count_in(data)}, or take {folders} away (`tianzhou store export` first writes "
            "what is in its store to a file)"
        )


def _read(data: Path) -> dict[str, Any]:
    try:
        found = json.loads((data / MARK).read_bytes())
        known = int(found["layout"])
    except (ValueError, TypeError, KeyError):
        layout = LAYOUT_OF_SEVERAL if count_in(data) > 1 else LAYOUT
        raise ConfigError(
            f'--data {data}: its {MARK} is damaged; write {{"layout": {layout}}} into it if this version wrote the '
            "folder, or give another folder"
        ) from None
    if known > LAYOUT_OF_GROUP:
        raise ConfigError(
            f"--data {data}: was written by a newer Tianzhou (layout {known}, this version knows {LAYOUT_OF_GROUP}); "
            "upgrade, or give another folder"
        )
    return dict(found)


def _write(data: Path, changes: Mapping[str, object]) -> None:
    before = _read(data) if (data / MARK).exists() else {}
    after = {**before, **changes}
    if after != before:
        new = data / f".{MARK}.new"
        write_file(new, json.dumps(after).encode() + b"\n")
        new.replace(data / MARK)
