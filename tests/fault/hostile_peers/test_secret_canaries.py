"""Secrets stay in the files of their owner: not in logs, replies, error texts, arguments or copies.

Every secret of these tests is a canary, a unique text. Servers, commands and clients get one wherever they accept a
secret, and run with good and bad input, with the most detailed logging. Then their whole output and all their files are
searched.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from processes import environment

from tianzhou import Producer
from tianzhou.access.needs import plain_needs
from tianzhou.cli import main as cli
from tianzhou.client.options import ClientOptions
from tianzhou.embedded import EmbeddedSettings
from tianzhou.errors import TianzhouError
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.gates.plain_files import PlainFiles
from tianzhou.remoting.proxies.socks import SocksProxies
from tianzhou.remoting.signing import signing
from tianzhou.remoting.tls import ServerTls, TlsSettings
from tianzhou.wire.command import Command
from waiting import until

CANARY = "CANARY-{}-5d1c"
FIRST, INNER, SOCKS, PASSPHRASE, OTHER, NEXT, GUESS = (
    CANARY.format(name) for name in ("first", "inner", "socks", "passphrase", "other", "next", "guess")
)
ANY = CANARY.partition("{")[0].encode()
LIMIT_S = 30


def user(name: str, password: str) -> str:
    return json.dumps({"username": name, "password": password})


def inner(name: str, password: str) -> str:
    return json.dumps({"accessKey": name, "secretKey": password})


class Place:
    """A folder in which `tianzhou` runs, and all outputs."""

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        output: pytest.CaptureFixture[bytes],
        log: pytest.LogCaptureFixture,
    ) -> None:
        self.folder = folder
        self.said: list[bytes] = []
        self._patch, self._output, self._log = patch, output, log
        log.set_level(logging.DEBUG)
        patch.chdir(folder)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    def run(self, *args: object, code: int | None = 0, **env: str) -> bytes:
        """Run a command in this process, because a process for each would take a minute; return its output and log."""
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["tianzhou", *map(str, args)])
            for name, value in env.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = self._output.readouterr()
        self.said += [out, err, self._log.text.encode()]
        self._log.clear()
        assert b"Traceback" not in err, err.decode()
        assert code is None or (ended.value.code or 0) == code, (out + err).decode()
        return out + err

    @contextmanager
    def serve(self, *args: object) -> Iterator[dict[str, Any]]:
        """Yield a server without umask, with the most detailed logging; its addresses and process id."""
        log = self.folder / f"{len(self.said)}.log"
        argv = [sys.executable, "-m", "tianzhou", "-v", "serve", "-o", "json", "--namesrv-port", "0", *map(str, args)]
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                argv, cwd=self.folder, env=environment(), stdout=subprocess.PIPE, stderr=stderr, umask=0
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield json.loads(line) | {"pid": process.pid, "log": log}
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=LIMIT_S)
            self.said += [line, rest, log.read_bytes()]
            log.unlink()

    def check(self, meant: set[str]) -> None:
        """Check that no output has a secret, and that only the files for secrets have any, readable by their owner
        alone.
        """
        for text in self.said:
            assert ANY not in text, text.decode(errors="replace")
        held = {
            str(path.relative_to(self.folder)): stat.S_IMODE(path.stat().st_mode)
            for path in self.folder.rglob("*")
            if path.is_file() and ANY in path.read_bytes()
        }
        assert held == dict.fromkeys(sorted(meant), 0o600)


def arguments_below(pid: int) -> list[bytes]:
    """Return the command lines of a process and all its children, as `ps` shows them."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(Path(f"/proc/{one}/cmdline").read_bytes())
        for task in Path(f"/proc/{one}/task").iterdir():
            waiting += map(int, (task / "children").read_text().split())
    return found


@pytest.fixture
def place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    caplog: pytest.LogCaptureFixture,
) -> Place:
    return Place(tmp_path, monkeypatch, capsysbinary, caplog)


def test_users_of_several_brokers(place: Place) -> None:
    conf = place.write(
        "server.conf",
        f"""
authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={user("root", FIRST)}
innerClientAuthenticationCredentials={inner("root", FIRST)}
""",
    )
    file = place.write("password", NEXT + "\n")
    with place.serve("--brokers", "2", "--data", "data", "-c", conf) as ready:
        assert all(ANY not in text for text in arguments_below(ready["pid"]))
        root = {"NAMESRV_ADDR": ready["namesrv"], "TIANZHOU_ACCESS_KEY": "root", "TIANZHOU_SECRET_KEY": FIRST}
        place.run("topic", "create", "orders", **root)
        place.run("produce", "orders", "--body", "x", **root)
        place.run("users", "create", "alice", "-o", "json", **root, TIANZHOU_PASSWORD=OTHER)
        place.run("users", "create", "alice", code=1, **root, TIANZHOU_PASSWORD=OTHER)
        place.run("users", "update", "alice", "--password-file", file, **root)
        place.run("users", "list", "-o", "json", **root)
        place.run("acl", "set", "alice", "--resource", "Topic:*", "--action", "Pub", **root)
        place.run("status", "-o", "json", code=None, **root)
        for key in ("initAuthenticationUser", "innerClientAuthenticationCredentials"):
            assert b"may not be changed" in place.run("config", "set", f"{key}={user('root', GUESS)}", code=1, **root)
        assert b"******" in place.run("config", "get", "initAuthenticationUser", "-o", "json", **root)
        place.run("config", "get", "-o", "json", **root)
        place.run("config", "set", "traceOn=false", **root)
        place.run("topic", "list", code=1, **root | {"TIANZHOU_SECRET_KEY": GUESS})
        place.run("topic", "list", code=None, **root | {"TIANZHOU_ACCESS_KEY": ""})
    users = {str(path.relative_to(place.folder)) for path in place.folder.rglob("users.json*")}
    # A server that changes its settings writes all of them, including secrets, into its own file.
    confs = (path for path in (place.folder / "data").rglob("*.conf*") if FIRST in path.read_text())
    saved = {str(path.relative_to(place.folder)) for path in confs}
    assert users
    assert saved
    place.check({"server.conf", "password", *users, *saved})


def test_accounts_changed_by_requests(place: Place) -> None:
    place.write(
        "data/plain_acl.yml",
        f"""
accounts:
- accessKey: root-user
  secretKey: {FIRST}
  admin: true
""",
    )
    with place.serve("--data", "data", "--broker-port", "0", "--set", "aclEnable=true") as ready:
        from tianzhou.sync.background import background

        async def change() -> list[bytes]:
            said = []
            async with RemotingClient(hooks=[signing("root-user", FIRST)]) as client:  # type: ignore[list-item]
                for fields in (
                    {"accessKey": "another", "secretKey": OTHER, "topicPerms": "orders=PUB"},
                    {"accessKey": "another", "secretKey": OTHER, "topicPerms": "orders=ALL"},
                    {"accessKey": "shrt", "secretKey": OTHER}, {"accessKey": "", "secretKey": OTHER},
                    {"accessKey": "another", "secretKey": OTHER + "\n"}, {"accessKey": "a\0nother", "secretKey": OTHER},
                ):  # fmt: skip
                    for code in (50, 4711, 26, 52):
                        reply = await client.invoke(ready["broker"], Command(code, fields=fields), 10_000)
                        said += [(reply.remark or "").encode(), reply.body, repr(reply.fields).encode()]
            return said

        place.said += background().run(change())
        path = place.folder / "data" / "plain_acl.yml"
        good = path.read_text()
        assert OTHER in good
        path.write_text(good + f"\n- accessKey: [{GUESS}\n secretKey: {GUESS}\n")  # the watch logs its name
        place.run("topic", "list", code=1, NAMESRV_ADDR=ready["namesrv"], TIANZHOU_ACCESS_KEY="root-user",
                  TIANZHOU_SECRET_KEY=GUESS)  # fmt: skip
        until(lambda: b"stay as they were" in ready["log"].read_bytes(), "the broken file is named in the log")
        path.write_text(good)
    place.check({"data/plain_acl.yml"})


STARTS = {
    "a user that is no JSON": f"authenticationEnabled=true\ninitAuthenticationUser={{{FIRST}\n",
    "a user without a name": f'authenticationEnabled=true\ninitAuthenticationUser={{"password":"{FIRST}"}}\n',
    "credentials that are a list": f'authenticationEnabled=true\ninnerClientAuthenticationCredentials=["{INNER}"]\n',
    "a misspelt key": f"initAuthenticationUsr={user('root', FIRST)}\n",
    "a proxy that is none": f"socksProxyConfig={SOCKS}\n",
    "a proxy without address": f'socksProxyConfig={{"*":{{"username":"u","password":"{SOCKS}"}}}}\n',
    "a passphrase of no key": f"tls.server.keyPassword={PASSPHRASE}\ntls.server.certPath=none\n",
    "an unknown tls key": f"tls.server.keyPasword={PASSPHRASE}\n",
}


def test_files_that_are_wrong_and_settings_that_are_shown(place: Place) -> None:
    meant = set()
    for number, text in enumerate(STARTS.values()):
        conf = place.write(f"{number}.conf", f"listenPort=0\nbindAddress=127.0.0.1\n{text}").name
        meant.add(conf)
        place.run("broker", "-c", conf, "-p", "-o", "json", code=None)
        place.run("namesrv", "-c", conf, "-p", code=None)
    for number, text in enumerate((
        f"accounts:\n- accessKey: root-user\n  secretKey: [{FIRST}\n", f"accounts: {FIRST}\n", f"{FIRST}: 1\n",
        f"accounts:\n- accessKey: root-user\n  secretKey: {{a: {FIRST}}}\n", f"accounts:\n- {FIRST}\n",
        f"accounts:\n- accessKey: root-user\n  secretKey: {FIRST}\n  secretKey: {FIRST}\n  topicPerms: 7\n",
        f"accounts:\n- accessKey: root-user\n  secretkey: {FIRST}\n", f"accounts:\n- secretKey: {FIRST}\n",
        f"accounts:\n- accessKey: root-user\n  secretKey: {FIRST}\n\tadmin: true\n", f"a: &{FIRST} 1\nb: *{FIRST}x\n",
        f"accounts:\n- accessKey: root-user\n  secretKey: !!python/object:{FIRST} x\n",
    )):  # fmt: skip
        meant.add(str(place.write(f"data{number}/plain_acl.yml", text).relative_to(place.folder)))
        file = place.folder / f"data{number}" / "plain_acl.yml"
        place.said.append(_said(lambda file=file: PlainFiles(file, file.parent / "acl", plain_needs)).encode())
    place.check(meant)


def _raised(act: Callable[[], object]) -> str:
    try:
        act()
    except TianzhouError:
        return traceback.format_exc()
    raise AssertionError("nothing was refused")


def _said(read: Callable[[], PlainFiles]) -> str:
    try:
        configs = read().configs.values()
    except TianzhouError:
        return traceback.format_exc()
    warnings = [warning for config in configs for warning in config.warnings]
    assert warnings, "nothing was refused, and nothing warned about"
    return "\n".join(warnings)


def test_values_and_errors_of_the_library(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", password="right")
    keys = {"access_key": "alice", "secret_key": OTHER, "security_token": NEXT}
    proxies = {"0.0.0.0/0": {"addr": "127.0.0.1:1", "username": "u", "password": SOCKS}}
    options = ClientOptions(**keys, socks_proxy_config=proxies)  # type: ignore[arg-type]
    tls = TlsSettings(
        "enforcing", test_mode_enable=False, server_cert_path=certificate, server_key_path=key,
        server_key_password=PASSPHRASE, client_key_password=PASSPHRASE,
    )  # fmt: skip
    settings = NamesrvSettings(init_authentication_user=user("root", FIRST))
    said = [
        repr(options), str(options), repr(tls), repr(settings), repr(SocksProxies(json.dumps(proxies))),
        repr(EmbeddedSettings(tmp_path, values={"initAuthenticationUser": user("root", FIRST)})),
        repr(Producer("g", "127.0.0.1:1", **keys)), repr(signing("alice", OTHER, NEXT)),  # type: ignore[arg-type]
        _raised(lambda: signing(None, OTHER)), _raised(lambda: signing("alice", None, NEXT)),
        _raised(lambda: SocksProxies(f'{{"*":"{SOCKS}"}}')), _raised(lambda: SocksProxies(SOCKS)),
        _raised(lambda: SocksProxies(f'["{SOCKS}"]')), _raised(lambda: SocksProxies(SOCKS.encode())),  # type: ignore[arg-type]

        _raised(lambda: ServerTls(tls)),
    ]  # fmt: skip
    for text in said:
        assert ANY.decode() not in text


def test_files_made_without_a_umask_are_their_owners(tmp_path: Path) -> None:
    from tianzhou.setting_files import write_settings

    path, before = tmp_path / "broker.conf", os.umask(0)
    try:
        for value in (FIRST, NEXT):
            write_settings(path, {"initAuthenticationUser": value}, ["initAuthenticationUser"])
    finally:
        os.umask(before)
    assert {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {
        "broker.conf": 0o600, "broker.conf.bak": 0o600,
    }  # fmt: skip
