"""Archives of parsed classes (class data sharing) for the JVMs of the tests.

A JVM that maps an archive does not parse the classes of Netty and RocketMQ again, a quarter of the work of a start. An
archive belongs to one class path and one JVM. Where there is none, tests run without. This file makes the archives of
Apache's servers and of the Java clients. It starts a name server,
a broker and a client to learn which classes they load.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import toolchain
from apache import ApacheBroker, ApacheNamesrv
from strangers import STRANGERS, Program

TOPIC = "archived"
MODES = (("sync", 2), ("async", 2), ("oneway", 2), ("batch", 2))


def listing(file: Path) -> str:
    """Return the option with which a JVM lists the classes that it loads."""
    return f"-XX:DumpLoadedClassList={file}"


def classes_loaded(version: str, folder: Path) -> tuple[list[str], list[str]]:
    """Return the classes that servers and a client of a version load."""
    files = [folder / f"{name}.classes" for name in ("namesrv", "broker", "client")]
    namesrv = ApacheNamesrv(version=version, home=folder / "home")
    namesrv.jvm_options = (listing(files[0]),)
    broker = ApacheBroker(namesrv.address, version=version, home=folder / "broker")
    broker.jvm_options = (listing(files[1]),)
    stranger = STRANGERS[f"java-{version}"]
    base = stranger.resolve

    def resolve(home: Path) -> list[str]:
        java, *rest = base(home)
        return [java, listing(files[2]), *rest]

    stranger = dataclasses.replace(stranger, resolve=resolve)
    try:
        namesrv.start()
        broker.start()
        with Program(stranger, "consume", namesrv.address, f"clustering:readers:{TOPIC}") as program:
            program.await_start()
            program.produce(TOPIC, "writers", 0, MODES)
            program.finish()
    finally:
        broker.kill()
        namesrv.kill()
    namesrv_classes, broker_classes, client_classes = (file.read_text().splitlines() for file in files)
    return list(dict.fromkeys([*namesrv_classes, *broker_classes])), client_classes


def archive(classes: Iterable[str], classpath: str, folder: Path) -> None:
    """Write the archive of a class path into a folder."""
    listed = folder / "classes"
    listed.write_text("".join(f"{line}\n" for line in classes))
    options = ["-Xshare:dump", "-XX:+UseG1GC", "-Xlog:disable", f"-XX:SharedClassListFile={listed}"]
    toolchain.run(
        [toolchain.tool("java"), *options, f"-XX:SharedArchiveFile={folder / toolchain.ARCHIVE}", "-cp", classpath],
        cwd=folder,
    )


def make(version: str) -> None:
    """Make the archives of a version's servers and client, unless they are there."""
    servers, client = toolchain.serving_classpath(version), toolchain.java_client(version)
    if all(toolchain.archived(one) for one in (servers, client)):
        return
    with tempfile.TemporaryDirectory() as folder:
        of_servers, of_client = classes_loaded(version, Path(folder))
    for classes, classpath in ((of_servers, servers), (of_client, client)):
        key = toolchain.archive_key(classpath)
        assert key is not None, "there is no JVM"
        toolchain.cached("archive", key, partial(archive, classes, classpath))


if __name__ == "__main__":
    make(sys.argv[1])
