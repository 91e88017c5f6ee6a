"""The server under test: Tianzhou, or Apache's to validate the tests themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from apache import HOST, PATIENT, TLS_ON, ApacheBroker, ApacheNamesrv
from frames import masters
from own import START_TIMEOUT, STOP_TIMEOUT, spawn
from toolchain import SERVERS

from server_ports import server_ports
from waiting import until


@dataclass(frozen=True)
class Ports:
    """The ports of a server. The broker's address stays the same over a restart, because offset ids contain it."""

    namesrv: int
    broker: int

    @classmethod
    def free(cls) -> Ports:
        """Return free ports, including the neighbours that Apache's broker uses."""
        first = server_ports(5)
        return cls(namesrv=first, broker=first + 3)


@dataclass(frozen=True)
class Server:
    """A running name server and broker."""

    kind: str
    namesrv: str
    broker: str
    store_dir: Path


@contextmanager
def serve(
    kind: str, data_dir: Path, ports: Ports | None = None, *, clean: bool = True, takes_tls: bool = False
) -> Iterator[Server]:
    """Run a server of kind `tianzhou`, `apache` or `apache-4.9.7` over `data_dir`.

    Args:
        kind: Which server.
        data_dir: Its directory; the store is `data_dir / "store"` for both.
        ports: Its ports; free ports when None.
        clean: Whether it is stopped cleanly, with its store closed. Otherwise it is killed, which is faster.
        takes_tls: Whether Apache's servers accept TLS and serve timer messages, which slows down their start.
    """
    chosen = ports or Ports.free()
    running: AbstractContextManager[Server]
    if kind == "tianzhou":
        running = _tianzhou(data_dir, chosen, clean)
    else:
        running = _apache(data_dir, chosen, clean, kind.partition("-")[2] or SERVERS[0], takes_tls)
    with running as server:
        yield server
    if clean and (server.store_dir / "abort").exists():
        raise AssertionError(f"{kind} left its abort file behind after a clean stop")


@contextmanager
def _apache(data_dir: Path, ports: Ports, clean: bool, version: str, takes_tls: bool) -> Iterator[Server]:
    store_dir = data_dir / "store"
    home = data_dir / "home"
    properties = TLS_ON if takes_tls else None
    namesrv = ApacheNamesrv(ports.namesrv, home / "namesrv", version, properties)
    broker = ApacheBroker(
        namesrv.address, ports.broker, store_dir, home=home / "broker", version=version, properties=properties
    )
    try:
        namesrv.start()
        broker.start()
        yield Server("apache", namesrv.address, broker.address, store_dir)
        if clean:
            broker.stop()
    finally:
        broker.kill()
        namesrv.kill()


@contextmanager
def _tianzhou(data_dir: Path, ports: Ports, clean: bool) -> Iterator[Server]:
    data_dir.mkdir(parents=True, exist_ok=True)
    namesrv, broker = f"{HOST}:{ports.namesrv}", f"{HOST}:{ports.broker}"
    log_file = data_dir.with_name(f"{data_dir.name}-server.log")
    process = spawn(
        log_file, "serve", "--data", data_dir, "--host", HOST,
        "--namesrv-port", ports.namesrv, "--broker-port", ports.broker,
        *(word for name, value in PATIENT.items() for word in ("--set", f"{name}={value}")),
    )  # fmt: skip
    try:

        def registered() -> bool:
            if process.poll() is not None:
                output = log_file.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"tianzhou ended with {process.returncode}: {output}")
            return broker in masters(namesrv, "TBW102")

        until(registered, "tianzhou is registered", within_s=START_TIMEOUT, every_s=0.1)
        yield Server("tianzhou", namesrv, broker, data_dir / "store")
        if clean:
            process.terminate()
            code = process.wait(STOP_TIMEOUT)
            assert code in (0, -15), f"tianzhou ended with {code}: {log_file.read_text()[-3000:]}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
