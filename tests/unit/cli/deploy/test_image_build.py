"""A real engine builds `deploy/Dockerfile`, and the images serve; only in `./test --slow`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
from toolchain import ToolchainMissingError, cached, tool

from process_tree import descendants
from server_ports import server_ports
from waiting import until

ROOT = Path(__file__).resolve().parents[4]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
BASE = "python:3.11-slim"
DEBIAN = "bookworm"
PACKAGES = ("python3", "python3-pip", "python3-venv", "python3-dev", "ca-certificates")
"""Packages of the base: Debian's own Python replaces `python:3.11-slim`, so that the test needs no image registry."""
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
PIP_CONF = "etc/pip.conf"
MAX_SERVER_BYTES = 250_000_000
"""Maximum size of the image without the console's libraries, above the size of its base."""
CHROOT = ("--isolation", "chroot")
USER_ID = 10001

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("image")]


class Engine:
    """Debian's buildah with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._command = [tool("buildah"), "--root", str(folder / "root"), "--runroot", str(folder / "run")]

    def start(self, *args: str | Path, **how: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([*self._command, *map(str, args)], text=True, **how)

    def attempt(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *map(str, args)], capture_output=True, text=True, timeout=1800, check=False
        )

    def do(self, *args: str | Path) -> str:
        done = self.attempt(*args)
        assert done.returncode == 0, (args, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout.strip()

    def build(self, image: str, *more: str) -> subprocess.CompletedProcess[str]:
        return self.attempt(
            "bud", *CHROOT, "--network", "host", "--pull-never", "--layers", "--format", "docker",
            "--ignorefile", DOCKERFILE.with_name("Dockerfile.dockerignore"), "-f", DOCKERFILE, "-t", image, *more, ROOT,
        )  # fmt: skip

    def size(self, image: str) -> int:
        """Return the total size of an image's files in bytes."""
        container = self.do("from", "--pull-never", image)
        done = subprocess.run(
            ["du", "-sbx", self.do("mount", container)], capture_output=True, text=True, timeout=300, check=True
        )
        self.do("rm", container)
        return int(done.stdout.split()[0])

    def config(self, image: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.do("inspect", "--type", "image", image))["Docker"]["config"]
        return found

    def in_new(self, image: str, *command: str) -> str:
        """Run a command in a new container of an image and return its output."""
        container = self.do("from", "--pull-never", image)
        try:
            return self.do("run", *CHROOT, "--network", "host", container, "--", *command)
        finally:
            self.do("rm", container)


def make_base(target: Path) -> None:
    """Create the folder of a minimal Debian with Python by debootstrap."""
    done = subprocess.run(
        [tool("debootstrap"), "--variant=minbase", f"--include={','.join(PACKAGES)}", DEBIAN, str(target / "base")],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ToolchainMissingError(f"debootstrap: {done.stdout[-500:]} {done.stderr[-500:]}")
    for package in (target / "base" / "var" / "cache" / "apt" / "archives").glob("*.deb"):
        package.unlink()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Yield an engine that has only the base image. Its storage of some gigabytes is on the disk."""
    if os.geteuid() != 0:
        pytest.skip("buildah's chroot isolation and debootstrap need root")
    folder = Path(tempfile.mkdtemp(prefix="tianzhou-image-", dir="/var/tmp"))
    try:
        engine = Engine(folder)
        base = cached("image-base", DEBIAN, make_base) / "base"
    except ToolchainMissingError as missing:
        folder.rmdir()
        pytest.skip(str(missing))
    container = engine.do("from", "scratch")
    engine.do("add", "-q", container, base, "/")
    # The build uses the package index of this machine and trusts the same certificate authorities.
    for name in (CERTIFICATES, PIP_CONF):
        if Path("/", name).exists():
            engine.do("copy", "-q", container, Path("/", name), f"/{name}")
    if index := os.environ.get("PIP_INDEX_URL"):
        engine.do("config", "--env", f"PIP_INDEX_URL={index}", container)
    engine.do("commit", "-q", "--rm", container, BASE)
    yield engine
    engine.do("rm", "--all")
    engine.do("rmi", "--all", "--force")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def console(engine: Engine) -> str:
    done = engine.build("tianzhou-console:test", "--target", "console")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return "tianzhou-console:test"


@pytest.fixture(scope="module")
def server(engine: Engine) -> str:
    done = engine.build("tianzhou:test")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return "tianzhou:test"


@contextmanager
def running(engine: Engine, image: str, data: Path, *args: str) -> Iterator[tuple[str, IO[str], int]]:
    """Run the image's program in a container; yield the container, the program's output and its process id."""
    data.mkdir(mode=0o750)
    os.chown(data, USER_ID, USER_ID)
    container = engine.do("from", "--pull-never", image)
    command = [*engine.config(image)["Entrypoint"], *args]
    process = engine.start(
        "run", *CHROOT, "--network", "host", "-v", f"{data}:/data", container, "--", *command,
        stdout=subprocess.PIPE, stderr=sys.stderr,
    )  # fmt: skip
    try:
        assert process.stdout is not None

        def program() -> int | None:
            return next(
                (pid for pid in descendants(process.pid) if Path(f"/proc/{pid}").stat().st_uid == USER_ID), None
            )

        yield container, process.stdout, until(program, "the image's program runs as its own user")
    finally:
        for pid in [*descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(60)
        engine.do("rm", container)


def test_the_image_without_the_console_is_small(engine: Engine, server: str) -> None:
    above = engine.size(server) - engine.size(BASE)
    assert 0 < above < MAX_SERVER_BYTES


def test_images_have_no_compiler_no_pip_and_no_tests(engine: Engine, server: str, console: str) -> None:
    search = (
        r"command -v gcc cc g++ pip; ls -d /build; "
        r"find /opt /home -type d \( -name tests -o -name pip -o -name setuptools -o -name .cache \); true"
    )
    for image in (server, console):
        found = engine.in_new(image, "sh", "-c", search)
        # Debian's Python in the base has a pip at this path.
        assert [path for path in found.splitlines() if path != "/usr/bin/pip"] == [], image


def test_the_image_serves_compiled_and_ends_in_order(engine: Engine, server: str, tmp_path: Path) -> None:
    assert engine.config(server)["Cmd"] == ["serve", "--data", "/data", "--host", "0.0.0.0"]
    namesrv, first = server_ports(), server_ports(3)
    where = ("--namesrv-port", str(namesrv), "--broker-port", str(first + 2))
    with running(engine, server, tmp_path / "data", *engine.config(server)["Cmd"][:3], *where) as (container, out, pid):
        ready = out.readline()
        assert "compiled" in ready, ready
        address = f"127.0.0.1:{namesrv}"
        probe = shlex.join(engine.config(server)["Healthcheck"]["Test"][1:]).replace("127.0.0.1:9876", address)
        engine.do("run", *CHROOT, "--network", "host", container, "--", *shlex.split(probe))
        send = ("tianzhou", "produce", "orders", "--body", "through an image", "-n", address)
        engine.do("run", *CHROOT, "--network", "host", container, "--", *send)
        read = ("tianzhou", "consume", "orders", "--from-beginning", "--max", "1", "-n", address)
        assert "through an image" in engine.do("run", *CHROOT, "--network", "host", container, "--", *read)
        os.kill(pid, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{pid}").exists(), "the server ends")
        assert not list((tmp_path / "data").rglob("abort")), "a store that was closed in order has no file `abort`"


def test_the_image_without_the_console_names_the_one_with_it(engine: Engine, server: str) -> None:
    container = engine.do("from", "--pull-never", server)
    done = engine.attempt("run", *CHROOT, container, "--", "tianzhou", "console", "--data", "/tmp/data")
    engine.do("rm", container)
    assert done.returncode != 0
    assert "--target console" in done.stderr


def test_the_image_with_the_console_serves_it(engine: Engine, console: str, tmp_path: Path) -> None:
    port = server_ports()
    args = ("console", "-n", "127.0.0.1:1", "--port", str(port), "--data", "/data")
    with running(engine, console, tmp_path / "data", *args) as (_, out, _):
        assert f"ready: console http://127.0.0.1:{port}" in out.readline()


def test_a_base_without_headers_is_refused(engine: Engine) -> None:
    container = engine.do("from", "--pull-never", BASE)
    engine.do("run", *CHROOT, container, "--", "sh", "-c", "rm -r /usr/include/python3*")
    engine.do("commit", "-q", "--rm", container, "headless:test")
    done = engine.build("tianzhou:headless", "--build-arg", "BASE=headless:test", "--target", "build")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "TIANZHOU_REQUIRE_COMPILED" in said
    assert "python3-dev" in said
