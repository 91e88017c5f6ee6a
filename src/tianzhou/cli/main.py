"""The `tianzhou` command: its start, its errors and its exit codes.

Few modules are imported before `run_command`, which ends without a traceback at Ctrl-C.
"""

from __future__ import annotations

import os
import sys

from tianzhou.cli.process import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, Interruptions, explain
from tianzhou.lazy_exports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TextIO

    from tianzhou.errors import TianzhouError


def main() -> None:
    """Run the `tianzhou` command line. `tianzhou admin NAME …` is `mqadmin NAME …`."""
    if sys.argv[1:2] == ["admin"] and sys.argv[2:3] and not sys.argv[2].startswith("-"):
        del sys.argv[1]
        mqadmin()
        return

    def work(imported: Callable[[], None]) -> None:
        from tianzhou.cli.app import part_for

        words = sys.argv[1:]
        if "_TIANZHOU_COMPLETE" in os.environ:
            from tianzhou.cli.completion import answer_shells, words_so_far

            answer_shells()
            words = words_so_far(os.environ)
        imported()
        part_for(words)(prog_name="tianzhou")

    run_command(work, "tianzhou")


def mqadmin() -> None:
    """Run the `mqadmin` command line: the sub-commands of Apache's tool by their own names."""

    def work(imported: Callable[[], None]) -> None:
        from tianzhou.cli.mqadmin.tool import run
        from tianzhou.cli.writing import print_note, print_text

        imported()
        run(sys.argv[1:], print_text, print_note)

    def words(error: TianzhouError) -> str:
        from tianzhou.cli.mqadmin.failures import failure

        return failure(error)

    run_command(work, "mqadmin", words)


def run_command(
    work: Callable[[Callable[[], None]], None], name: str, words: Callable[[TianzhouError], str] = explain
) -> None:
    """Run a command line.

    Args:
        work: runs it. It must call its argument when all modules are imported. From that call on, Ctrl-C lets it clean
            up.
        name: prefix of error messages.
        words: returns the text of an error for users.

    Exit codes: 0 success; 1 failure; 2 wrong usage or configuration, also a port or folder that is in use; 130
    interrupted.
    """
    try:
        import signal
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    hook = sys.unraisablehook

    def imported() -> None:
        if interruptible:
            sys.unraisablehook = Interruptions.raise_again
            signal.signal(signal.SIGINT, Interruptions.interrupt)

    Interruptions.noted = False
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    from tianzhou.cli.gc_freeze import collect_seldom
    from tianzhou.errors import ConfigError, StoreLocked, TianzhouError

    collect_seldom()
    _open_missing_streams()
    try:
        work(imported)
    except TianzhouError as error:
        wrong_use = isinstance(error, ConfigError | StoreLocked)
        _fail(name, words(error), EXIT_USAGE if wrong_use else EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout has ended (`| head`). That is not an error of the command.
        _give_up_stdout()
        sys.exit(EXIT_FAILED)
    except OSError as error:
        _give_up_stdout()
        _fail(name, f"{error.filename}: {error.strerror}" if error.filename else str(error), EXIT_FAILED)
    except RuntimeError as error:
        # Up to Python 3.11 the interpreter wraps an interruption within `__set_name__`, as of a dataclass's field.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        sys.exit(EXIT_INTERRUPTED)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            sys.unraisablehook = hook
        # Reset the state, because the process of a test runs several commands.
        Interruptions.noted = False


def _fail(name: str, text: str, code: int) -> NoReturn:
    from tianzhou.cli import writing

    writing.print_note(f"{name}: {text}", writing.Tone.bad)
    sys.exit(code)


def _open_missing_streams() -> None:
    # A shell's `>&-` closes the stream, and Python sets it to None. Open the null device, so that writes need no check.
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _give_up_stdout() -> None:
    # Discard the buffered output, so that Python does not report the same error again at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
