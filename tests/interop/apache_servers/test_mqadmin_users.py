"""Users, policies and accounts by mqadmin: our tool and Apache's at brokers with access control, theirs and ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from guarded import ACCOUNTS, ADMIN, USERS, Guarded, guarded
from mqadmin import OURS, Mqadmin
from mqadmin_directions import ACCESS_DIFFERENCES, APACHE_497, APACHE_533, OURS_TO_497, OURS_TO_533, OURS_TO_TIANZHOU
from toolchain import ToolchainMissingError

OF_USERS = (
    "createUser -c DefaultCluster -u alice -p secret-one",
    "createUser -b {broker} -u bob -p secret-two -t Super",
    "createUser -b {broker} -u bob -p secret-two -t Super",
    "updateUser -b {broker} -u alice -s disable",
    "updateUser -b {broker} -u alice -p secret-three",
    "getUser -b {broker} -u alice",
    "listUser -c DefaultCluster",
    "listUser -b {broker} -f nobody",
    "createAcl -c DefaultCluster -s User:alice -r Topic:orders,Topic:x* -a Pub,Sub -d Allow",
    "createAcl -b {broker} -s User:alice -r Group:g -a Sub -d Deny -i 10.0.0.1,10.0.0.2",
    "updateAcl -b {broker} -s User:alice -r Group:g -a Sub -d Allow",
    "getAcl -b {broker} -s User:alice",
    "getAcl -b {broker} -s User:nobody",
    "listAcl -c DefaultCluster -s alice",
    "listAcl -b {broker} -s nobody",
    "copyUser -f {broker} -t {broker} -u alice",
    "copyAcl -f {broker} -t {broker} -s User:alice",
    "deleteAcl -b {broker} -s User:alice -r Group:g",
    "deleteAcl -c DefaultCluster -s User:alice",
    "deleteUser -c DefaultCluster -u alice",
    "deleteUser -b {broker} -u bob",
)
OF_ACCOUNTS = (
    "clusterAclConfigVersion -b {broker}",
    "updateAclConfig -c DefaultCluster -a alice-key -s alice-secret -i PUB -u SUB -t orders=PUB|SUB -m false",
    "updateAclConfig -b {broker} -a alice-key -s alice-secret -w 10.0.0.1",
    "updateGlobalWhiteAddr -b {broker} -g 10.10.10.1,10.10.10.2",
    "clusterAclConfigVersion -c DefaultCluster",
    "deleteAclConfig -b {broker} -a alice-key",
    "deleteAclConfig -b {broker} -a alice-key",
    "getAclConfig -b {broker}",
)
Said = dict[str, list[list[str]]]


def asked(server: Guarded, version: str, lines: tuple[str, ...]) -> Said:
    """Return the output of a tool for the administrator, by sub-command."""
    said: Said = {}
    with Mqadmin(version) as tools:
        tools.sign(ADMIN)
        for line in lines:
            printed = tools.run(*line.format(broker=server.broker).split(), "-n", server.namesrv)
            said.setdefault(line.split()[0], []).append(comparable(printed, server))
    return said


def comparable(printed: str, server: Guarded) -> list[str]:
    """Return the part of the output that two tools or two servers must have in common."""
    codes = re.findall(r"CODE: (\d+)", printed)
    if codes or "Exception" in printed or "FAILED" in printed:
        return ["failed", *codes[:1]]
    text = printed.replace(server.broker, "<broker>").replace(f"create user to {server.namesrv} success.", "")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", text)
    text = re.sub(r"\S*plain_acl\.yml", "<file>", text)
    text = re.sub(r"\S+@[0-9a-f]+$", "", text, flags=re.MULTILINE)  # a Java object's address
    # A name server of ours also has users, and prints a line about them.
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if server.namesrv not in line]
    return sorted(line for line in lines if line)


def said_of(server_kind: str, kind: str, versions: tuple[str, ...], lines: tuple[str, ...], folder: Path) -> list[Said]:
    """Return the output of tools at servers with access control; each tool gets fresh servers."""
    found = []
    for version in versions:
        with guarded(server_kind, kind, folder / version, ["acl_a"], ["acl_g"]) as server:
            found.append(asked(server, version, lines))
    return found


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Said]:
    """Return the output of each tool at each kind of cluster."""
    try:
        return {
            (version, kind): one
            for kind in ("apache", "tianzhou")
            for version, one in zip(
                ("5.3.3", OURS),
                said_of(kind, USERS, ("5.3.3", OURS), OF_USERS, tmp_path_factory.mktemp(kind)),
                strict=True,
            )
        }
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "pair", "measure"),
    [
        (OURS_TO_533, (OURS, "apache"), ("5.3.3", "apache")),
        (OURS_TO_TIANZHOU, (OURS, "tianzhou"), ("5.3.3", "apache")),
        (APACHE_533, ("5.3.3", "tianzhou"), ("5.3.3", "apache")),
    ],
)
def test_users_and_policies_are_shown_as_by_apache(
    said: dict[tuple[str, str], Said], direction: str, pair: tuple[str, str], measure: tuple[str, str]
) -> None:
    different = {name for name, lines in said[measure].items() if said[pair][name] != lines}
    assert different == set(ACCESS_DIFFERENCES[direction]), {name: said[pair][name] for name in different}


@pytest.mark.slow
def test_accounts_are_shown_as_by_apache(tmp_path: Path) -> None:
    try:
        apaches = said_of("apache", ACCOUNTS, ("4.9.7", OURS), OF_ACCOUNTS, tmp_path / "apache")
        ours = said_of("tianzhou", ACCOUNTS, ("4.9.7", OURS), OF_ACCOUNTS, tmp_path / "tianzhou")
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    measure = apaches[0]
    pairs = {
        OURS_TO_497: apaches[1],
        OURS_TO_TIANZHOU: ours[1],
        APACHE_497: ours[0],
    }
    for direction, pair in pairs.items():
        different = {name: (pair[name], lines) for name, lines in measure.items() if pair[name] != lines}
        known = ACCESS_DIFFERENCES[direction if direction != OURS_TO_TIANZHOU else OURS_TO_497]
        assert set(different) == set(known), (direction, different)
