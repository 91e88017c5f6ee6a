"""Message bodies in files: `produce --body-file` reads one body, and `consume --out` writes one file per message."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tianzhou.cli.output import print_note
from tianzhou.errors import ConfigError
from tianzhou.escaping import shown
from tianzhou.file_modes import MODES, make_folders

if TYPE_CHECKING:
    from tianzhou.model import MessageExt

STDIN: Final = "-"
READ_BYTES: Final = 1 << 20


async def read_body(file: Path, limit_bytes: int) -> bytes:
    """Read a file, or stdin, as one message's body.

    Args:
        file: the file; `-` for stdin.
        limit_bytes: maximum size of a body.

    Raises:
        ConfigError: the file cannot be read, is empty, or is larger than the limit.
    """
    is_stdin = str(file) == STDIN
    if is_stdin and sys.stdin is None:
        raise ConfigError("--body-file -: stdin is closed; name a file")
    if is_stdin and sys.stdin.isatty():
        print_note("type the body of one message; end it with Ctrl-D")
    loop = asyncio.get_running_loop()
    whole: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        try:
            body = _read(0 if is_stdin else os.open(file, os.O_RDONLY), limit_bytes)
        except OSError as error:
            failure = ConfigError(f"--body-file {file}: {error.strerror}")
            loop.call_soon_threadsafe(_fail, whole, failure)
        else:
            loop.call_soon_threadsafe(_succeed, whole, body)

    # A daemon thread does not stop the process from exiting while it waits for a pipe without data.
    threading.Thread(target=read, daemon=True, name="body").start()
    body = await whole
    if not body:
        raise ConfigError(f"--body-file {file}: is empty; a message needs at least one byte")
    if len(body) > limit_bytes:
        raise ConfigError(
            f"--body-file {file}: has more than the {limit_bytes} bytes a message may have; store it where consumers "
            "can read it, and send its address"
        )
    return body


def _read(descriptor: int, limit_bytes: int) -> bytes:
    body = bytearray()
    try:
        while len(body) <= limit_bytes and (data := os.read(descriptor, READ_BYTES)):
            body += data
    finally:
        if descriptor:
            os.close(descriptor)
    return bytes(body)


def _fail(whole: asyncio.Future[bytes], error: Exception) -> None:
    if not whole.done():
        whole.set_exception(error)


def _succeed(whole: asyncio.Future[bytes], body: bytes) -> None:
    if not whole.done():
        whole.set_result(body)


class BodyFolder:
    """A folder with one file per message, which contains the unchanged bytes of the body.

    The name of a file is the message's position, `BROKER-QUEUE-OFFSET.body`. No file is ever overwritten.

    Args:
        folder: the folder; it is created when it does not exist.

    Raises:
        ConfigError: the folder cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            make_folders(folder)
        except OSError as error:
            raise ConfigError(f"--out {folder}: {error.strerror}; name a folder") from None

    def write(self, message: MessageExt) -> Path:
        """Write a message's body and return the file.

        Raises:
            ConfigError: a file of this name exists.
            OSError: the file cannot be written; the incomplete file is removed.
            ProtocolError: the body cannot be unpacked.
        """
        body = message.body
        # An untrusted server sends the broker's name. Quoting removes `/`, so the file stays inside the folder.
        broker = quote(message.broker_name, safe="")
        file = self._folder / f"{broker}-{message.queue_id}-{message.queue_offset}.body"
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODES.files)
        except FileExistsError:
            raise ConfigError(
                f"--out {self._folder}: {shown(file.name)} is there already and is not overwritten; remove it, or name "
                "another folder"
            ) from None
        try:
            with os.fdopen(descriptor, "wb") as target:
                target.write(body)
        except OSError as error:
            file.unlink(missing_ok=True)
            error.filename = str(file)
            raise
        return file
