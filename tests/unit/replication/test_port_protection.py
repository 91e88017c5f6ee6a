"""Certificates that allow a slave to copy the log, by both kinds of access control."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from authority import Authority, certified

from tianzhou.access.acl_changes import read_policies
from tianzhou.access.needs import needs
from tianzhou.access.requests import AccessRules
from tianzhou.access.user_rules import AccessSwitches, UserRules
from tianzhou.access.users import created
from tianzhou.errors import ProtocolError
from tianzhou.limits import Bounds, Refusals
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.tls import ServerTls, TlsSettings
from tianzhou.replication.allowed_addresses import AllowedAddresses
from tianzhou.replication.port_protection import PortProtection
from tianzhou.wire.bodies.access import PolicyEntryInfo, PolicyInfo, UserInfo

BOTH = AccessSwitches(authentication=True, authorization=True)


def rules() -> AccessRules:
    """Return rules with a super user, one who may update the cluster, and one who may read all topics."""
    users = created({}, UserInfo("root", "root-secret", "Super"), Bounds())
    policies = {}
    for name, resource, action in (("slave", "Cluster:main", "Update"), ("reader", "Topic:*", "Sub")):
        users = created(users, UserInfo(name, f"{name}-secret"), Bounds())
        entry = PolicyEntryInfo(resource, [action], None, "Allow")
        policies[name] = read_policies([PolicyInfo("Custom", [entry])])
    made = UserRules(BOTH, partial(needs, cluster="main"))
    made.replace(users, policies)
    return made


def shown(name: str) -> dict[str, object]:
    return {"subject": ((("commonName", name),),)}


@pytest.mark.parametrize(
    ("account", "listed", "says"),
    [
        ("root", "", ""),
        ("slave", "", ""),
        ("reader", "", "'reader', may not copy the log"),
        ("reader", "10.0.0.7", "'reader', may not copy the log"),
        ("nobody", "", "'nobody', may not copy the log"),
        ("", "", "shows no certificate"),
        ("", "10.0.0.7", ""),
    ],
)
def test_who_may_copy_the_log(tmp_path: Path, account: str, listed: str, says: str) -> None:
    authority = Authority(tmp_path)
    settings = certified(authority)
    tls = ServerTls(
        TlsSettings(
            test_mode_enable=False,
            server_cert_path=settings.server_cert_path,
            server_auth_client=True,
            server_key_path=settings.server_key_path,
            server_trust_cert_path=str(authority.path),
            account_from="CN",
        )
    )
    refusals = Refusals()
    access = AccessGate(rules(), refusals)
    port = PortProtection(AllowedAddresses(listed), tls, access=access)
    certificate = shown(account) if account else None
    if says:
        with pytest.raises(ProtocolError, match=says):
            port.check_slave("10.0.0.7", certificate)
    else:
        port.check_slave("10.0.0.7", certificate)
    assert refusals.counts["access"] == int("may not" in says)


def test_without_accounts_from_certificates_or_access_control_nobody_is_asked() -> None:
    PortProtection().check_slave("10.0.0.7", None)
    PortProtection(access=AccessGate(rules(), Refusals())).check_slave("10.0.0.7", None)
    PortProtection(tls=ServerTls(TlsSettings())).check_slave("10.0.0.7", shown("reader"))
