"""Typing of a recipe's commands as the page prints them, in the test's process; only the address is the test's.

Programs (`python NAME …`) run in threads: `print` writes to the file of the command line, and `kill %N` calls the
handler of SIGTERM that the program has set.
"""

from __future__ import annotations

import re
import runpy
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tianzhou.cli import main as entry
from tianzhou.testing import Cluster
from waiting import until

RECIPES = Path(__file__).resolve().parents[3] / "docs" / "howto" / "recipes"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMESRV, BROKER = "127.0.0.1:9876", "127.0.0.1:10911"
"""Addresses that pages print."""
SET_HANDLER = signal.signal
PROGRAM_S = 60.0
"""Seconds after which a program that should have ended, or begun to wait, has failed."""


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Return a page's fenced blocks: language and text."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


class Program:
    """A program of a page, in a thread.

    Args:
        words: its file and arguments.
        output: receives its output.
    """

    def __init__(self, words: list[str], output: Callable[[str], None]) -> None:
        self._words = words
        self._output = output
        self._handler: Callable[[int, None], object] | None = None
        self._begun = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=" ".join(words), daemon=True)

    def start(self) -> None:
        """Run it."""
        sys.argv = self._words  # programs start one after the other, and read it before they wait
        self._thread.start()

    def _run(self) -> None:
        try:
            runpy.run_path(self._words[0], {"print": self._print}, "__main__")
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error
        finally:
            self._begun.set()

    def is_current(self) -> bool:
        """Whether the current thread is the program's."""
        return threading.current_thread() is self._thread

    def handle_by(self, handler: Callable[[int, None], object]) -> None:
        """Record the handler of SIGTERM, which a program sets just before it waits."""
        self._handler = handler
        self._begun.set()

    def await_begin(self) -> None:
        """Wait until the program waits for its end."""
        assert self._begun.wait(PROGRAM_S), f"{self._words} does not begin"
        self.check()

    def _print(self, *values: object, flush: bool = False) -> None:
        del flush
        self._output(" ".join(map(str, values)) + "\n")

    def check(self) -> None:
        """Raise the error of a program that failed."""
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        """Send SIGTERM to a program that handles it, and wait for the program's end."""
        if self._handler is not None:
            self._handler(signal.SIGTERM, None)
        self._thread.join(PROGRAM_S)
        assert not self._thread.is_alive(), f"{self._words} does not end"
        self.check()


class RecipeTypist:
    """Types the commands of one page.

    Args:
        folder: folder of the page's programs and files; the working directory.
        addresses: the test's addresses by those of the page.
        capture: captures the output of the command line.
    """

    def __init__(self, folder: Path, addresses: Mapping[str, str], capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._addresses = addresses
        self._capture = capture
        self._background: list[Program] = []

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that a program writes."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def write(self, page: str) -> None:
        """Write the programs of a page into the folder."""
        for language, text in blocks_of(RECIPES / page):
            if language == "python":
                name = re.match(r"# (\S+\.py)\n", text)
                assert name, text
                (self.folder / name[1]).write_text(self._here(text), encoding="utf-8")

    def type(self, page: str, before: Mapping[str, Callable[[], object]] | None = None) -> None:
        """Write the programs of a page and type its commands, one after the other.

        Args:
            page: its file name.
            before: functions to call before the command with this beginning, such as a wait for an output.
        """
        hooks = dict(before or {})
        self.write(page)
        for language, text in blocks_of(RECIPES / page):
            if language != "console":
                continue
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                for begin in [one for one in hooks if command.startswith(one)]:
                    hooks.pop(begin)()
                self._one(shlex.split(command), shown)
        assert not hooks, f"{page} has no command that begins with {', '.join(hooks)}"

    def _here(self, text: str) -> str:
        """Return a text of the page with the test's addresses."""
        for printed, own in self._addresses.items():
            text = text.replace(printed, own)
        return text

    def _one(self, words: list[str], shown: str) -> None:
        match words:
            case ["cat", name]:
                until(lambda: same(self.lines(name), shown), f"{name}: {self.lines(name)}")
            case ["kill", *numbers]:
                for number in numbers:
                    self._background[int(number.removeprefix("%")) - 1].end()
            case ["python", *program, ">", name, "&"]:
                self.start(program, name)
            case ["python", *program]:
                printed: list[str] = []
                running = Program(program, printed.append)
                running.start()
                running.end()
                assert same(printed, shown), (program, printed)
            case ["tianzhou", *_]:
                out = self.tianzhou(words)
                assert not shown.strip() or same(out.splitlines(), self._here(shown)), (words, out)
            case _:
                raise AssertionError(f"the page has a command that this test cannot type: {words}")

    def start(self, words: list[str], name: str) -> None:
        """Start a program in the background.

        Args:
            words: its file and arguments.
            name: the file that it prints to.
        """
        path = self.folder / name
        path.write_text("")

        def write(text: str) -> None:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)

        program = Program(words, write)
        self._background.append(program)
        program.start()
        program.await_begin()

    def handle(self, number: int, handler: Callable[[int, None], object]) -> object:
        """Replace `signal.signal`, which only the main thread may call."""
        program = next((one for one in self._background if one.is_current()), None)
        if program is None:
            return SET_HANDLER(number, handler)
        program.handle_by(handler)
        return None

    def tianzhou(self, words: list[str]) -> str:
        """Return the output of a command that ends with 0."""
        self._capture.readouterr()
        sys.argv = words
        with pytest.raises(SystemExit) as ended:
            entry.main()
        printed = self._capture.readouterr()
        assert not ended.value.code, (words, printed.err)
        return printed.out

    def end(self) -> None:
        """End the programs that still run."""
        for program in self._background:
            program.end()


def same(lines: list[str], shown: str) -> bool:
    """Whether printed lines are those of the page, in any order and with any spaces between columns."""

    def plain(text: list[str]) -> list[str]:
        return sorted(re.sub(r" +", " ", line).strip() for line in text)

    return plain(lines) == plain(shown.splitlines())


@contextmanager
def typing(
    folder: Path, cluster: Cluster, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[RecipeTypist]:
    """Type in a folder; programs end with the block."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
    (broker,) = cluster.brokers.values()
    typist = RecipeTypist(folder, {NAMESRV: cluster.namesrv_addr, BROKER: broker.address}, capture)
    monkeypatch.setattr(signal, "signal", typist.handle)
    try:
        yield typist
    finally:
        typist.end()
