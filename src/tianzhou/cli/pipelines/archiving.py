"""`pipeline archive` of few messages by the client, and what both ways see to before they begin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tianzhou.cli.children import interruptible
from tianzhou.cli.progress import progress

if TYPE_CHECKING:
    from tianzhou.cli.pipelines.clusters import Cluster
    from tianzhou.pipelines.archive_folders import ArchiveFolders
    from tianzhou.pipelines.few_archived import Done, FewArchived


@dataclass(frozen=True)
class ArchiveWanted:
    """What is to be archived.

    Attributes:
        topics: the topics.
        to: the folder of the table.
        checkpoint: the folder that keeps how far it is; None for one below `to`.
        most: most messages in a micro-batch.
        skip_lost: go on when messages were deleted before they were archived.
        corrupt_bodies: what becomes of a compressed body that cannot be unpacked: fail, null or skip.
    """

    topics: list[str]
    to: str
    checkpoint: str | None
    most: int
    skip_lost: bool
    corrupt_bodies: str


@contextmanager
def folders_held(wanted: ArchiveWanted) -> Iterator[ArchiveFolders | None]:
    """Have the folders of an archive to Parquet for this process, whoever writes it; None where only Spark can write.

    Args:
        wanted: what is to be archived.

    Raises:
        ConfigError: another archive runs with them, or the table is that of another checkpoint.
    """
    from tianzhou.pipelines.archive_folders import ArchiveFolders
    from tianzhou.pipelines.archive_log import UnknownForm, next_step, only_sparks

    if any(map(only_sparks, (wanted.to, wanted.checkpoint or wanted.to))):
        yield None
        return
    folders = ArchiveFolders(wanted.to, wanted.checkpoint)
    with folders.held():
        known = True
        try:
            # Spark would leave out what has the number of a batch that is in the table, and say nothing.
            next_step(folders.logs(), str(folders.to), str(folders.checkpoint))
        except UnknownForm:
            known = False
        yield folders if known else None


def archive_few(wanted: ArchiveWanted, folders: ArchiveFolders, cluster: Cluster) -> Done | None:
    """Archive few messages by the client; None when Spark has to do it.

    Args:
        wanted: what is to be archived.
        folders: of `folders_held`.
        cluster: where the topics are.

    Raises:
        TianzhouError: messages are lost, the servers do not answer, or another archive writes to the same folders.
        typer.Exit: it was interrupted.
    """
    try:
        from tianzhou.pipelines import few_archived as p
        from tianzhou.spark import connections
    except ImportError:
        return None  # the session says what is not installed
    from tianzhou.pipelines.archive_log import UnknownForm

    options = p.options_of(
        wanted.topics,
        {**cluster.source_options, "corruptBodies": wanted.corrupt_bodies},
        os.environ,
        most=wanted.most,
        skip_lost=wanted.skip_lost,
    )
    with interruptible():
        try:
            return _archived(p.FewArchived(options, connections.connect, folders))
        except UnknownForm:
            return None
        finally:
            connections.Process.here().close()


def _archived(archive: FewArchived) -> Done | None:
    from tianzhou.pipelines.few_archived import is_little

    waiting = archive.begin()
    if not is_little(waiting):
        return None
    with progress("archived", waiting) as advance:
        return archive.run(advance)
