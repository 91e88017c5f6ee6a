"""Builds of the foreign programs and their dependencies, cached by the content of their sources.

The cache is ``$TIANZHOU_TEST_CACHE`` or ``~/.cache/tianzhou-tests``; `./test` runs this file to fill it before the
first test, because downloads would exceed the tests' time limits for servers and programs. A missing tool or an
unreachable package registry raises `ToolchainMissingError`, which the tests turn into a skip with the reason. A program
of ours that does not compile is an error.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
JAVA_CLIENTS = ("5.3.3", "4.9.7")
SERVERS = ("5.3.3", "4.9.7")
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
BUILD_TIMEOUT = 600
FETCH_ATTEMPTS = 2
OLDEST_GO = (1, 18)
CONNECT_TIMEOUT = "-Dcom.rocketmq.remoting.client.connect.timeout=20000"
"""Connect timeout of Java's clients, and of brokers at name servers; the default of three seconds is too short on a
busy machine.
"""

SHORT_LIVED = (
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip
"""Options of every JVM here: they halve the work of a start. Speed is not measured, and published classes need no
verification.
"""
ACCESS_ORACLES = {"4.9.7": "plain_access", "5.3.3": "policies"}
"""Folders of the programs that decide about access, by version of the servers with these rules."""
COMPLETE = ".complete"
"""Marker of a complete folder in the cache."""
KEY_READERS = ("bcpkix-", "bcprov-", "bcutil-")
"""Jars of Bouncy Castle. Only Netty uses them here, for keys that Java's own parser reads as well."""


class ToolchainMissingError(Exception):
    """A compiler, a runtime or a package is not available on this machine."""


def cache_dir() -> Path:
    """Return the directory that holds everything resolved or built."""
    chosen = os.environ.get("TIANZHOU_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "tianzhou-tests"


def tool(name: str) -> str:
    """Return the path of an executable, or raise `ToolchainMissingError`."""
    found = shutil.which(name)
    if found is None:
        raise ToolchainMissingError(f"`{name}` is not installed")
    return found


def environment() -> dict[str, str]:
    """Return the environment for foreign programs: ours without variables that would change the behaviour of these
    programs or of Python.
    """
    foreign = ("PYTHON", "JAVA_TOOL_OPTIONS", "NAMESRV_ADDR", "ROCKETMQ_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def server_classpath(version: str = SERVERS[0]) -> str:
    """Return the class path of Apache's name server and broker of a version."""
    return f"{_jars(HERE / 'java' / f'server-{version}' / 'pom.xml')}/*"


def serving_classpath(version: str = SERVERS[0]) -> str:
    """Return the class path of a server's process, without the jars that need a second of each start to read
    one key.
    """
    jars = Path(server_classpath(version)).parent
    return os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")) if not jar.name.startswith(KEY_READERS))


def java_client(version: str) -> str:
    """Return the class path of our Java program, compiled against that version of Apache's client."""
    javac = tool("javac")
    pom = HERE / "java" / f"client-{version}" / "pom.xml"
    jars = _jars(pom)
    sources = sorted((HERE / "java" / "src").glob("*.java"))

    def compile_into(target: Path) -> None:
        folder = target / "classes"
        command = [javac, "-nowarn", "-encoding", "UTF-8", "-d", str(folder), "-cp", f"{jars}/*"]
        run([*command, *map(str, sources)], cwd=HERE)
        # Class data sharing supports only jars.
        with zipfile.ZipFile(target / "classes.jar", "w") as jar:
            for file in sorted(folder.glob("*.class")):
                jar.write(file, file.name)

    classes = cached(f"classes-{version}", _digest([pom, *sources], salt="jar"), compile_into)
    return os.pathsep.join(map(str, [classes / "classes.jar", *sorted(jars.glob("*.jar"))]))


def mqadmin_runner(version: str) -> str:
    """Return the class path of the program that runs the commands of that version of Apache's tool."""
    javac = tool("javac")
    jars = server_classpath(version)
    sources = sorted((HERE / "java" / "mqadmin").glob("*.java"))

    def compile_into(target: Path) -> None:
        command = [javac, "-nowarn", "-encoding", "UTF-8", "-d", str(target), "-cp", jars]
        run([*command, *map(str, sources)], cwd=HERE)

    classes = cached(f"mqadmin-{version}", _digest(sources, salt=jars), compile_into)
    return f"{serving_classpath(version)}{os.pathsep}{classes}"


def filter_oracle(version: str) -> str:
    """Return the class path of the program that evaluates filter expressions with that version of Apache's library."""
    javac = tool("javac")
    jars = server_classpath(version)
    sources = sorted((HERE / "java" / "filter").glob("*.java"))

    def compile_into(target: Path) -> None:
        command = [javac, "-nowarn", "-encoding", "UTF-8", "-d", str(target), "-cp", jars]
        run([*command, *map(str, sources)], cwd=HERE)

    classes = cached(f"filter-{version}", _digest(sources, salt=jars), compile_into)
    return f"{classes}{os.pathsep}{jars}"


def access_oracle(version: str) -> str:
    """Return the class path of the program that decides with the access control of that version of Apache's servers."""
    javac = tool("javac")
    jars = server_classpath(version)
    sources = sorted((HERE / "java" / ACCESS_ORACLES[version]).glob("*.java"))

    def compile_into(target: Path) -> None:
        command = [javac, "-nowarn", "-encoding", "UTF-8", "-d", str(target), "-cp", jars]
        run([*command, *map(str, sources)], cwd=HERE)

    classes = cached(f"access-{version}", _digest(sources, salt=jars), compile_into)
    return f"{classes}{os.pathsep}{jars}"


def integration_tests() -> str:
    """Return the class path of RocketMQ's own integration tests (4.9.7), preceded by our replacement for
    their servers.
    """
    javac = tool("javac")
    jars = _jars(HERE / "java" / "integration-4.9.7" / "pom.xml")
    sources = sorted((HERE / "java" / "integration").rglob("*.java"))

    def compile_into(target: Path) -> None:
        command = [javac, "-nowarn", "-encoding", "UTF-8", "-d", str(target), "-cp", f"{jars}/*"]
        run([*command, *map(str, sources)], cwd=HERE)

    classes = cached("integration-4.9.7", _digest(sources, salt=str(jars)), compile_into)
    return f"{classes}{os.pathsep}{jars}/*"


def go_program() -> Path:
    """Return the compiled Go program."""
    go = tool("go")
    found = re.search(r"go(\d+)\.(\d+)", run([go, "version"], cwd=HERE))
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise ToolchainMissingError(f"Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or later is needed")
    folder = HERE / "go"
    sources = sorted([*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"])

    def build_into(target: Path) -> None:
        fetch([go, "mod", "download"], cwd=folder)
        run([go, "build", "-o", str(target / "stranger"), "."], cwd=folder)

    return cached("go", _digest(sources), build_into) / "stranger"


def cpp_python() -> Path:
    """Return the interpreter of a virtual environment that holds the C++ client's Python wheel."""
    requirements = HERE / "cpp" / "requirements.txt"

    def install_into(target: Path) -> None:
        fetch([sys.executable, "-m", "venv", str(target)], cwd=HERE)
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        fetch([*pip, "-r", str(requirements)], cwd=HERE)
        fetch([str(target / "bin" / "python"), "-c", "import rocketmq.client"], cwd=HERE)

    key = _digest([requirements], salt=sys.version)
    return cached("cpp", key, install_into) / "bin" / "python"


def node_modules() -> Path:
    """Return the folder of the Node client and its dependencies."""
    npm = tool("npm")
    folder = HERE / "node"
    lists = [folder / "package.json", folder / "package-lock.json"]

    def install_into(target: Path) -> None:
        for file in lists:
            shutil.copy(file, target)
        fetch([npm, "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=target)

    return cached("node", _digest(lists), install_into) / "node_modules"


def everything() -> dict[str, Callable[[], object]]:
    """Return the programs that the tests outside `--slow` resolve or build, by name, each with its function."""
    return {
        **{f"jars of the servers {version}": partial(server_classpath, version) for version in SERVERS},
        "Go's program": go_program,
        "the C++ client": cpp_python,
        "the Node client": node_modules,
        **{f"Java's program {version}": partial(java_client, version) for version in JAVA_CLIENTS},
        **{f"the runner of mqadmin {version}": partial(mqadmin_runner, version) for version in SERVERS},
        **{f"the filters {version}": partial(filter_oracle, version) for version in SERVERS},
    }


def prepare() -> None:
    """Resolve and build everything in parallel, and print the missing programs.

    Their tests report the same again: they are skipped, or fail where a program of ours does not compile.
    """
    with ThreadPoolExecutor(4) as pool:
        running = {name: pool.submit(build) for name, build in everything().items()}
        for name, one in running.items():
            try:
                one.result()
            except (ToolchainMissingError, RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"not to be had: {name}: {error}", file=sys.stderr)


def _jars(pom: Path) -> Path:
    tool("java")
    maven = tool("mvn")

    def copy_into(target: Path) -> None:
        goal = f"{DEPENDENCY_PLUGIN}:copy-dependencies"
        options = ["-q", "-B", "-f", str(pom), "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        # All of Maven's processes write into one repository in the home folder, without locks.
        with _Lock(cache_dir() / "maven.lock"):
            fetch([maven, *options, goal], cwd=HERE)

    return cached(f"jars-{pom.parent.name}", _digest([pom]), copy_into)


def _digest(files: Iterable[Path], *, salt: str = "") -> str:
    digest = hashlib.sha256(salt.encode())
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def cached(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return ``<cache>/<name>-<key>``, built in place and marked complete at the end.

    It is built where it will stay, because a virtual environment cannot be moved; two builders of the same folder take
    turns by a lock directory.
    """
    target = cache_dir() / f"{name}-{key}"
    marker = target / COMPLETE
    if marker.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _Lock(target.with_name(target.name + ".lock")):
        if not marker.exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            build(target)
            marker.touch()
    return target


class _Lock:
    """An advisory lock on a file, held while the block runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = self._path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def fetch(command: list[str], *, cwd: Path) -> None:
    """Run a command that needs a package registry, which may be out of reach."""
    for attempt in range(1, FETCH_ATTEMPTS + 1):
        try:
            run(command, cwd=cwd)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            if attempt == FETCH_ATTEMPTS:
                raise ToolchainMissingError(str(error)) from error
        else:
            return


def run(command: list[str], *, cwd: Path, environ: dict[str, str] | None = None) -> str:
    """Run a command and return its output; a failure is an error."""
    result = subprocess.run(
        command, cwd=cwd, env=environ, check=False, capture_output=True, text=True, timeout=BUILD_TIMEOUT
    )
    if result.returncode != 0:
        output = (result.stdout + result.stderr).strip()[-2000:]
        raise RuntimeError(f"`{' '.join(command[:4])} …` failed:\n{output}")
    return result.stdout


if __name__ == "__main__":
    prepare()
