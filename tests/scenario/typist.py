"""Typing of a page's commands as printed; only ports and folders are the test's."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from processes import Tianzhou

from tianzhou.broker.server import free_port_pair

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
BLOCK = re.compile(r"(?:^ *<!-- (\w+)[^>]*-->\n)?^( *)```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


class Typist:
    """Types the commands of a page in a folder of the test.

    Args:
        folder: folder of the written files and of the commands.
        stack: ends all started processes.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.ports: dict[str, str] = {}
        self.running: dict[str, Tianzhou] = {}

    def port(self, printed: str) -> str:
        """Return the test's port for a printed one."""
        while printed not in self.ports:
            port = str(free_port_pair("127.0.0.1"))
            if not any(abs(int(port) - int(other)) < 4 for other in self.ports.values()):
                self.ports[printed] = port
        return self.ports[printed]

    def here(self, text: str) -> str:
        """Return a printed text with the test's ports and folders."""
        text = re.sub(r"\b(9876|10911|10921|309[123]1|4091[1-4])\b", lambda found: self.port(found[0]), text)
        return text.replace("/tmp/", f"{self.folder}/").replace("--seconds 10", "--seconds 1")

    def printed(self, text: str) -> str:
        """Return the lines of an output with the ports of the page, and single spaces."""
        for printed, port in self.ports.items():
            text = text.replace(port, printed)
        # The order of addresses depends on the ports.
        return "\n".join(sorted(re.sub(r" +", " ", text).strip().splitlines()))

    def type(self, block: str) -> None:
        """Type all commands of a block, one after the other."""
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            self.one(command, shown)

    def one(self, command: str, shown: str) -> None:
        """Type a command, and compare its output with the page."""
        program, *words = self.here(command).split()
        if program == "cat":
            self.write(words[0], self.here(shown))
        elif words[-1] == "&":
            self.start(words[:-1])
        elif program in {"sed", "cp", "mv"}:
            subprocess.run(self.here(command), shell=True, check=True, cwd=self.folder)
        else:
            assert program == "tianzhou", command
            self.run(words, shown)

    def write(self, name: str, text: str) -> None:
        # A page omits the default port, which is in use where tests run.
        listens = "" if "listenPort=" in text else f"listenPort={self.port('10911')}\n"
        (self.folder / name).write_text(f"{text}{listens}bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n")

    def start(self, words: list[str]) -> Tianzhou:
        """Start a server, and wait until it is ready."""
        if words == ["namesrv"]:
            home = f"kvConfigPath={self.folder}/kv.json\nbindAddress=127.0.0.1\n"
            (self.folder / "namesrv.conf").write_text(home)
            words = ["namesrv", "-c", "namesrv.conf", "--port", self.port("9876")]
        server = self.running[" ".join(words)] = self.stack.enter_context(Tianzhou(self.folder, *words, "-o", "json"))
        server.ready()
        return server

    def output(self, words: list[str], *codes: int) -> str:
        """Return the output of a command that ends with 0 or one of the given codes."""
        with Tianzhou(self.folder, *words, namesrv=f"127.0.0.1:{self.port('9876')}") as command:
            assert command.wait() in (0, *codes), (words, command.out, command.err)
            return command.out

    def members(self, broker: str) -> list[dict[str, Any]]:
        """Return a broker's members of `status`, which ends with 1 while a dead member is still listed."""
        status = json.loads(self.output(["status", "-o", "json"], 1))
        return [one for one in status["brokers"] if one["broker"] == broker]

    def leads(self, broker: str) -> bool:
        """Whether `status` shows a broker's master."""
        return any(one["id"] == 0 for one in self.members(broker))

    def roles(self, broker: str) -> list[str]:
        """Return the sorted roles of a broker's members."""
        return sorted(one["role"] for one in self.members(broker))

    def run(self, words: list[str], shown: str) -> None:
        """Run a command that ends with 0, and compare its output with the page."""
        out, redirected = words, ""
        if ">" in words:
            out, redirected = words[: words.index(">")], words[-1]
        printed = self.output(out)
        if redirected:
            (self.folder / redirected).write_text(printed)
        if shown.strip():
            assert self.printed(printed) == self.printed(shown), words


def blocks_of(page: str, mark: str | None = None) -> list[str]:
    """Return a page's blocks of commands without their indentation.

    Args:
        page: file name of the page.
        mark: only the blocks after a comment `<!-- MARK … -->`; "" for those without a mark, None for all.
    """
    found = BLOCK.findall((HOWTO / page).read_text(encoding="utf-8"))
    return [
        re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for marked, indent, block in found if mark in (None, marked)
    ]
