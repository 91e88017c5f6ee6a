"""Access control of `tianzhou serve --brokers` and `--replicas`, whose servers create an account for themselves."""

from __future__ import annotations

import json
from pathlib import Path

from processes import Tianzhou, serve

from process_tree import children
from tianzhou import sync
from tianzhou.cli.brokers.child import SETTINGS_ENV
from tianzhou.model import Message
from waiting import until

ADMIN = {"access_key": "administrator", "secret_key": "admin-secret"}


def check_secret(server: Tianzhou) -> None:
    """Check that no file or argument readable by other users has the servers' own secret."""
    for pid in children(server.pid):
        process = Path(f"/proc/{pid}")
        (order,) = (
            json.loads(value.partition(b"=")[2])
            for value in (process / "environ").read_bytes().split(b"\0")
            if value.startswith(SETTINGS_ENV.encode())
        )
        secret = order["own"][1].encode()
        assert len(secret) > 30
        assert secret not in (process / "cmdline").read_bytes() + server.err.encode() + server.out.encode()
        assert (process / "environ").stat().st_mode & 0o077 == 0


def test_brokers_of_one_command_share_topics_under_access_control(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    accounts = tmp_path / "data" / "plain_acl.yml"
    accounts.write_text("accounts:\n- {accessKey: administrator, secretKey: admin-secret, admin: true}\n")
    accounts.chmod(0o600)
    with serve(tmp_path, "--brokers", 2, "--set", "aclEnable=true") as server:
        namesrv = server.ready()["namesrv"]
        with sync.Admin(namesrv, **ADMIN) as admin, sync.Producer("shop", namesrv, **ADMIN) as producer:
            producer.send(Message("orders", b"x"))
            # The message has created it on one of them; `serve` creates it on the other with a signed request.
            until(lambda: admin.topics.exists("orders"), "the topic is registered")
            until(lambda: len(admin.topics.route("orders").broker_datas) == 2, "the topic is on both")
        assert "innerClientAuthenticationCredentials" not in server.err
        check_secret(server)


def test_members_of_one_command_elect_and_copy_by_tls_under_access_control(tmp_path: Path) -> None:
    config = tmp_path / "serve.conf"
    config.write_text(
        "authenticationEnabled=true\nauthorizationEnabled=true\n"
        'initAuthenticationUser={"username":"administrator","password":"admin-secret"}\n'
    )
    with serve(tmp_path, "--replicas", 3, "-c", config, "--tls", "enforcing") as server:
        namesrv = server.ready()["namesrv"]
        with sync.Admin(namesrv, tls=True, **ADMIN) as admin:
            admin.topics.create("orders", read_queue_nums=1, write_queue_nums=1)
        with sync.Producer("shop", namesrv, durable=True, tls=True, **ADMIN) as producer:
            for number in range(10):
                producer.send(Message("orders", b"%d" % number))
        assert "innerClientAuthenticationCredentials" not in server.err
        check_secret(server)
