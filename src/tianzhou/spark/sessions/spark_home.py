"""A SPARK_HOME without PySpark's archive, for sessions of one machine.

Spark puts the archive before all other entries of the import path of its Python processes. A session's first stream
starts six processes and each later stream another one. Each of them compiles PySpark's modules again, because Python
does not store the bytecode of modules in an archive. Without the archive they import the installed PySpark, whose
bytecode is stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tianzhou.spark.sessions.java_runtime import cache_directory
from tianzhou.spark.sessions.own_folders import NotOurs, lay_once

logger = logging.getLogger(__name__)

VARIABLE: Final = "SPARK_HOME"
LEFT_OUT: Final = "python"
"""The folder that contains the archive."""
_INTERPRETERS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def installed_home() -> Path | None:
    """Return the home inside the installed PySpark; None if there is none with an archive."""
    spec = find_spec("pyspark")
    home = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if home is None or not (home / "bin" / "spark-submit").is_file() or not (home / "jars").is_dir():
        return None
    return home if (home / LEFT_OUT / "lib" / "pyspark.zip").is_file() else None


def is_found_without(home: Path, environ: Mapping[str, str], conf: Mapping[str, str]) -> bool:
    """Whether the processes of a session find PySpark without the archive.

    They do if they run this interpreter and PySpark is in its site packages or in PYTHONPATH. A SPARK_HOME that the
    user set is not replaced.

    Args:
        home: the home of `installed_home`.
        environ: the environment of the processes.
        conf: the session's settings.
    """
    if VARIABLE in environ or any(key in conf for key in _INTERPRETERS):
        return False
    if environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return False
    looked_in = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    looked_in += [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return home.parent.resolve() in {Path(part).resolve() for part in looked_in}


def lay(home: Path, cache: Path) -> Path:
    """Create a home of links to all parts of another home except its Python. An existing one is reused.

    Args:
        home: the complete home.
        cache: parent folder; created if missing, and used only if no other user can have written into it.

    Raises:
        OSError: the home cannot be created.
    """
    parts = {
        part.name: str(part)
        for part in sorted(home.iterdir())
        if part.is_dir() and part.name != LEFT_OUT and not (part / "__init__.py").exists()
    }
    name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def draw(target: Path) -> None:
        target.mkdir(mode=0o700)
        for part, there in parts.items():
            (target / part).symlink_to(there)

    target = lay_once(cache, name, draw)
    if {part.name: str(part.readlink()) for part in target.iterdir()} != parts:
        raise NotOurs(f"{target} is not what was written there; remove it")
    return target


@contextlib.contextmanager
def without_archive(environ: MutableMapping[str, str], conf: Mapping[str, str]) -> Iterator[None]:
    """Start a JVM within this context with such a home, if its processes do not need the archive.

    Later processes get the earlier environment again.

    Args:
        environ: the environment that the JVM inherits.
        conf: the session's settings.
    """
    home = installed_home()
    laid = None
    if home is not None and is_found_without(home, environ, conf):
        try:
            laid = lay(home, cache_directory(environ).with_name("spark"))
        except OSError as error:
            logger.info("Spark's Python processes will start slower: %s", error)
    if laid is None:
        yield
        return
    environ[VARIABLE] = str(laid)
    try:
        yield
    finally:
        environ.pop(VARIABLE, None)
