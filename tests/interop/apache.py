"""Apache RocketMQ's own name server and broker, 5.3.3 or 4.9.7, as processes under our control."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pytest
from authority import Authority
from frames import GET_ROUTE, UPDATE_BROKER_CONFIG, Account, Connection, accepts, call, members
from toolchain import CONNECT_TIMEOUT, SERVERS, SHORT_LIVED, ToolchainMissingError, serving_classpath, tool

from server_ports import server_ports
from waiting import until

HOST = "127.0.0.1"
SEGMENT_SIZE = 64 * 1024 * 1024
START_TIMEOUT = 180
UNREGISTERED_S = 1.0
"""Seconds that a listening broker may stay unregistered before the test requests its registration."""
STOP_TIMEOUT = 90
EXIT_TIMEOUT = 15
CONTROLLER_METADATA = 1005
PATIENT: dict[str, object] = {"waitTimeMillsInSendQueue": 60_000, "osPageCacheBusyTimeOutMills": 60_000}
"""Of every broker: a busy machine is no reason to refuse a send that waited for a second."""
TLS_OFF: dict[str, object] = {"tls.server.mode": "disabled"}
TLS_ON: dict[str, object] = {"tls.server.mode": "permissive"}
"""System properties of a server that accepts TLS and plain connections, Apache's default."""
# Unmapping a file reaches into these packages. Without them 4.9.7 never unmaps a deleted segment.
OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")
# 4.9.7 ends immediately when it finds no logging configuration in its home.
QUIET = '<configuration><root level="WARN"/></configuration>\n'


class TlsConnection(Connection):
    """A TLS connection that accepts every certificate, and presents its own when it has one."""

    def __init__(self, address: str, certificate: str | None = None, key: str | None = None) -> None:
        super().__init__(address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        self._socket = context.wrap_socket(self._socket)


def _identity(home: Path) -> dict[str, object]:
    """Return the properties of a server with a certificate.

    Without one, it creates an RSA key at each start, which takes more work than the rest of the start.
    """
    certificate, key = Authority(home).issue("server")
    return {"tls.test.mode.enable": "false", "tls.server.certPath": certificate, "tls.server.keyPath": key}


class _JavaServer:
    """One Java process with its home, its logs and its configuration below `home`."""

    main_class: str
    logback: str
    heap: tuple[str, ...]

    def __init__(
        self, port: int, home: Path | str | None, version: str, properties: Mapping[str, object] | None
    ) -> None:
        self.port = port
        self.version = version
        self.properties = dict(properties or {})
        self.address = f"{HOST}:{port}"
        self._own_home = home is None
        self.home = Path(home) if home is not None else Path(tempfile.mkdtemp(prefix="rocketmq-"))
        self.home.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    def _launch(self, conf: Mapping[str, object]) -> None:
        config_file = self.home / "server.conf"
        config_file.write_text("".join(f"{name}={value}\n" for name, value in conf.items()))
        logging_file = self.home / "conf" / self.logback
        logging_file.parent.mkdir(exist_ok=True)
        logging_file.write_text(QUIET)
        # A server with TLS loads the classes of TLS and reads its key, a fifth of the work of its start.
        classpath = serving_classpath(self.version)
        properties = {**_identity(self.home), **self.properties} if self.properties else TLS_OFF
        command = [
            tool("java"),
            *self.heap,
            *SHORT_LIVED,
            "-XX:MaxDirectMemorySize=512m",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            CONNECT_TIMEOUT,
            f"-Duser.home={self.home}",
            f"-Drocketmq.home.dir={self.home}",
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            classpath,
            self.main_class,
            "-c",
            str(config_file),
        ]
        self._log = (self.home / "console.log").open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, cwd=self.home
        )

    def _check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"{self.main_class} ended with {self._process.returncode}: {self.console()}")

    def console(self) -> str:
        """Return the end of the process's output."""
        file = self.home / "console.log"
        return file.read_text(errors="replace")[-3000:] if file.exists() else ""

    def kill(self) -> None:
        """End the process by SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(EXIT_TIMEOUT)
        self._release()

    def _release(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _remove_home(self) -> None:
        if self._own_home:
            shutil.rmtree(self.home, ignore_errors=True)


class ApacheNamesrv(_JavaServer):
    """Apache's name server.

    Args:
        port: The port to listen on; a free one when None.
        home: Folder of configuration and logs; a temporary directory, removed at the end, when None.
        version: Which of `toolchain.SERVERS`.
        properties: System properties of the process, such as those of TLS. Without any, the server refuses TLS.
        conf: Entries of its configuration besides ours.
    """

    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
    logback = "logback_namesrv.xml"
    heap = ("-Xms128m", "-Xmx256m")

    def __init__(
        self,
        port: int | None = None,
        home: Path | str | None = None,
        version: str = SERVERS[0],
        properties: Mapping[str, object] | None = None,
        conf: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(server_ports() if port is None else port, home, version, properties)
        self.conf: dict[str, object] = {
            "listenPort": self.port, "rocketmqHome": self.home, "kvConfigPath": self.home / "kv.json", **(conf or {}),
        }  # fmt: skip

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        self._launch(self.conf)

        def accepting() -> bool:
            self._check_alive()
            with socket.create_connection((HOST, self.port), timeout=1):
                return True

        until(accepting, "the name server listens", within_s=START_TIMEOUT, every_s=0.1)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # it has no data to lose
        self._remove_home()


class ApacheController(_JavaServer):
    """Apache's controller of 5.3.3, alone in its group.

    Args:
        home: Folder of configuration, logs and its store; a temporary directory, removed at the end, when None.
    """

    main_class = "org.apache.rocketmq.controller.ControllerStartup"
    logback = "logback_controller.xml"
    heap = ("-Xms128m", "-Xmx256m")

    def __init__(self, home: Path | str | None = None) -> None:
        super().__init__(server_ports(), home, SERVERS[0], None)
        self.conf: dict[str, object] = {
            "controllerType": "DLedger",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": self.home / "controller",
            "rocketmqHome": self.home,
        }

    def start(self) -> None:
        """Start it and wait until it leads its group."""
        self._launch(self.conf)

        def leads() -> bool:
            self._check_alive()
            if not accepts(self.address):
                return False
            reply = call(self.address, CONTROLLER_METADATA)
            return reply.code == 0 and reply.fields.get("controllerLeaderAddress") == self.address

        until(leads, "the controller leads", within_s=START_TIMEOUT, every_s=0.2)


class ApacheBroker(_JavaServer):
    """Apache's broker, a master registered with one name server.

    Args:
        namesrv: Address of the name server.
        port: The port to listen on; the broker also takes its neighbours `port - 2` and `port + 1`.
        store_dir: The store root, not removed at the end; below `home` when None.
        conf: Entries of `broker.conf` that override ours.
        home: Folder of configuration, logs and offsets; a temporary directory, removed at the end, when None.
        version: Which of `toolchain.SERVERS`.
        properties: System properties of the process; with `tls.server.mode=enforcing` it connects to its name server by
            TLS. Without any, the broker refuses TLS.

    Attributes:
        tls_identity: certificate and key for a name server that requires them.
        administrator: account that may change settings, when the broker checks accounts.
    """

    main_class = "org.apache.rocketmq.broker.BrokerStartup"
    logback = "logback_broker.xml"
    heap = ("-Xms512m", "-Xmx1g")

    def __init__(
        self,
        namesrv: str,
        port: int | None = None,
        store_dir: Path | str | None = None,
        conf: Mapping[str, object] | None = None,
        home: Path | str | None = None,
        version: str = SERVERS[0],
        properties: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(server_ports(4) + 2 if port is None else port, home, version, properties)
        self.namesrv = namesrv
        self.tls_identity: tuple[str, str] | tuple[()] = ()
        self.administrator: Account | None = None
        self.store_dir = Path(store_dir) if store_dir is not None else self.home / "store"
        self.conf: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": namesrv,
            "rocketmqHome": self.home,
            "storePathRootDir": self.store_dir,
            "storePathCommitLog": self.store_dir / "commitlog",
            "mappedFileSizeCommitLog": SEGMENT_SIZE,
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "enablePropertyFilter": "true",
            "registerNameServerPeriod": 10_000,
            "diskMaxUsedSpaceRatio": 99,
            # With timers, 5.3.3 writes a wheel of 40 MB every second by default: a third of a core.
            "timerFlushIntervalMs": 60_000,
            **PATIENT,
            **(conf or {}),
        }

    @property
    def abort_file(self) -> Path:
        """The marker that exists while the store is open, and after a crash."""
        return self.store_dir / "abort"

    def start(self) -> None:
        """Start it and wait until the name server routes to it.

        Do not use the ready line, because a broker of 5.3.3 prints it even when its first registration has failed.
        """
        self.launch()
        self.await_registered()

    def launch(self) -> None:
        """Start it without waiting."""
        self.store_dir.mkdir(parents=True, exist_ok=True)
        self._launch(self.conf)

    def await_registered(self) -> None:
        """Wait until the name server routes to it.

        A broker of 5.3.3 registers only with reachable name servers. On a busy machine its first registration may
        come before it has found one, and it retries after ten seconds. A change of its permission makes it register
        at once.
        """
        next_try = 0.0

        def registered() -> bool:
            nonlocal next_try
            self._check_alive()
            if self._is_routed():
                # The address may still have the route of a broker that was killed just before.
                return accepts(self.address)
            if next_try == 0.0:
                if accepts(self.address):
                    next_try = time.monotonic() + UNREGISTERED_S
            elif time.monotonic() >= next_try:
                self._register_again()
                next_try = time.monotonic() + UNREGISTERED_S
            return False

        until(registered, "the broker is registered", within_s=START_TIMEOUT, every_s=0.1)

    def _enforces_tls(self) -> bool:
        return self.properties.get("tls.server.mode") == "enforcing"

    def _is_routed(self) -> bool:
        if not self._enforces_tls():
            return self.address in members(self.namesrv, "TBW102")
        with TlsConnection(self.namesrv, *self.tls_identity) as namesrv:
            return self.address.encode() in namesrv.call(GET_ROUTE, {"topic": "TBW102"}).body

    def _register_again(self) -> None:
        body = f"brokerPermission={self.conf.get('brokerPermission', 6)}\n".encode()
        if not self._enforces_tls():
            call(self.address, UPDATE_BROKER_CONFIG, body=body, account=self.administrator)
            return
        with TlsConnection(self.address, *self.tls_identity) as broker:
            broker.call(UPDATE_BROKER_CONFIG, body=body, account=self.administrator)

    def stop(self) -> None:
        """Stop it cleanly: SIGTERM, until the store is closed and the process is gone.

        The broker's exit can hang after the store is closed; then it is killed, without loss.
        """
        if self._process is None:
            return
        process = self._process
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT
        while self.abort_file.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        closed = not self.abort_file.exists()
        try:
            process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(EXIT_TIMEOUT)
        self._release()
        if not closed:
            raise RuntimeError(f"the broker left its abort file behind: {self.console()}")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._remove_home()


@contextmanager
def serving(
    version: str,
    conf: Mapping[str, object] | None = None,
    *,
    accounts: str | None = None,
    administrator: Account | None = None,
) -> Iterator[str]:
    """Run Apache's name server and broker of a version and yield the address, for tests that read no store afterwards.

    Args:
        version: of both.
        conf: settings of the broker.
        accounts: its `plain_acl.yml`.
        administrator: account that may change the broker's settings, if the broker checks accounts.
    """
    namesrv = ApacheNamesrv(version=version)
    broker = None
    try:
        namesrv.start()
        broker = ApacheBroker(namesrv.address, conf=conf, version=version)
        if accounts is not None:
            rules = broker.home / "conf" / "plain_acl.yml"
            rules.parent.mkdir(parents=True, exist_ok=True)
            rules.write_text(accounts)
        broker.administrator = administrator
        broker.start()
        yield namesrv.address
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    finally:
        # A clean stop of Apache's broker takes a quarter of a minute.
        for server in (broker, namesrv):
            if server is not None:
                server.kill()
                server._remove_home()
