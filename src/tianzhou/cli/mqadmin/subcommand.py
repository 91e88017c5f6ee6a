"""Declaration of a sub-command, and a parser of its command line that behaves like Apache's. Pure.

An option with a value consumes the next word, even one that begins with a hyphen (`-s -1`, `-a -message.type`).
`-topic`, `--topic`, `--topic=orders`, `-t=orders`, `-torders`, unambiguous prefixes like `--top` and joined flags like
`-lm` are accepted, as in Apache's tools.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.cli.mqadmin.answers import Answer

TRUE: Final = "true"
WIDTH: Final = 100
"""Width of a help text in characters."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a sub-command.

    Attributes:
        letter: short name, as `t` or `cf`; empty without one.
        name: long name.
        help: description.
        required: whether the option must be given.
        flag: whether the option has no value.
    """

    letter: str
    name: str
    help: str
    required: bool = False
    flag: bool = False

    @property
    def shown(self) -> str:
        """The names, as `-t/--topic`."""
        return f"-{self.letter}/--{self.name}" if self.letter else f"--{self.name}"


class Values:
    """The values of options, by their long names.

    Args:
        given: the given values, as text; a flag is `true`.
        command: name of the sub-command, for errors.
        warnings: a sentence for each part of the command line without effect.

    Attributes:
        command: name of the sub-command.
    """

    def __init__(self, given: dict[str, str], command: str = "", warnings: Sequence[str] = ()) -> None:
        self.given = given
        self.warnings = warnings
        self.command = command

    def get(self, name: str, default: str = "") -> str:
        """Return the value without surrounding spaces, or the default."""
        return self.given.get(name, default).strip()

    def optional(self, name: str) -> str | None:
        """Return the value, None if it was not given."""
        return self.get(name) or None

    def truth(self, name: str, default: bool = False) -> bool:
        """Return whether the value is `true`. All other values are false, as in Java."""
        return self.get(name).lower() == TRUE if name in self.given else default

    def number(self, name: str, default: int | None = None) -> int:
        """Return the value as an integer.

        Raises:
            ConfigError: the value is not an integer.
        """
        if name not in self.given and default is not None:
            return default
        text = self.get(name)
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{self.command}: --{name} is {text!r}; expected a whole number") from None

    def listed(self, name: str, separator: str = ",") -> list[str]:
        """Return the parts of the value; none if it was not given."""
        return [part.strip() for part in self.get(name).split(separator) if part.strip()]


Work = Callable[["Admin", Values], "Awaitable[Answer] | AsyncIterator[Answer]"]


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A sub-command of mqadmin.

    Attributes:
        name: name in Apache's tools.
        summary: description in one sentence.
        example: arguments of an example.
        work: returns the result, or yields several results.
        options: options in addition to the common ones.
        one_of: long names of options of which one must be given.
        first_wins: whether the first of these options counts if several are given. Otherwise they exclude each other.
            Apache's tool has both kinds of sub-commands.
        remark: additional text for the help.
        alone: whether it needs no cluster.
    """

    name: str
    summary: str
    example: str
    work: Work
    options: tuple[Option, ...] = ()
    one_of: tuple[str, ...] = ()
    first_wins: bool = False
    remark: str = ""
    alone: bool = False

    @property
    def every_option(self) -> tuple[Option, ...]:
        """The sub-command's options and the common ones. `-o` is the output unless mqadmin has another use for it."""
        letters, names = {one.letter for one in self.options}, {one.name for one in self.options}
        common = (
            Option("h", "help", "Print this help.", flag=True),
            Option("n", "namesrvAddr", "Name servers, several joined by ';'; default: $NAMESRV_ADDR, 127.0.0.1:9876."),
            Option("" if "o" in letters else "o", "output", "text for people; json for programs, a document a line."),
            Option("", "json", "The same as --output json.", flag=True),
            Option("", "tls", "Speak TLS; default: TIANZHOU_TLS_ENABLE.", flag=True),
        )
        return (*self.options, *(one for one in common if one.name not in names and one.letter not in (letters - {""})))

    def parse(self, arguments: Sequence[str]) -> Values:
        """Parse a command line.

        Raises:
            ConfigError: the command line is invalid. The error contains the usage.
        """
        given, unused = _read(self, arguments)
        warnings = [f"{word!r} belongs to no option and is ignored" for word in unused]
        if given.get("help") == TRUE:
            return Values(given, self.name)
        missing = [one.shown for one in self.every_option if one.required and not given.get(one.name, "").strip()]
        if missing:
            raise self.wrong(f"{', '.join(missing)} is missing")
        shown = " or ".join(self._shown(name) for name in self.one_of)
        named = [name for name in self.one_of if name in given]
        if self.one_of and not named:
            raise self.wrong(f"give {shown}")
        if len(named) > 1 and not self.first_wins:
            raise self.wrong(f"{shown}: give only one of them")
        for name in named[1:]:
            del given[name]
            warnings.append(f"{self._shown(name)} is ignored, because {self._shown(named[0])} is given")
        return Values(given, self.name, warnings)

    def _shown(self, name: str) -> str:
        return next(one.shown for one in self.options if one.name == name)

    def wrong(self, why: str) -> ConfigError:
        """Return the error for an invalid command line."""
        return ConfigError(f"{self.name}: {why}\n{self.usage}\nExample: mqadmin {self.name} {self.example}".rstrip())

    @property
    def usage(self) -> str:
        """The usage, on a few lines."""
        choice = " | ".join(self._called(name) for name in self.one_of)
        words = [f"({choice})"] if choice else []
        for one in sorted(self.every_option, key=_in_order):
            if one.name not in self.one_of:
                called = self._called(one.name)
                words.append(called if one.required else f"[{called}]")
        return textwrap.fill(
            f"usage: mqadmin {self.name} {' '.join(words)}", WIDTH, subsequent_indent=" " * 7, break_on_hyphens=False
        )

    def _called(self, name: str) -> str:
        one = next(one for one in self.every_option if one.name == name)
        called = f"-{one.letter}" if one.letter else f"--{one.name}"
        return called if one.flag else f"{called} <arg>"

    @property
    def help(self) -> str:
        """The complete help text."""
        options = sorted(self.every_option, key=_in_order)
        lefts = [
            f" {f'-{one.letter},' if one.letter else '   '}--{one.name}{'' if one.flag else ' <arg>'}"
            for one in options
        ]
        width = max(map(len, lefts)) + 3
        lines = [self.usage, textwrap.fill(self.summary, WIDTH)]
        for left, one in zip(lefts, options, strict=True):
            text = one.help + (" Required." if one.required else "")
            lines.append(textwrap.fill(text, WIDTH, initial_indent=left.ljust(width), subsequent_indent=" " * width))
        if self.remark:
            lines.append(textwrap.fill(self.remark, WIDTH))
        return "\n".join([*lines, f"Example: mqadmin {self.name} {self.example}".rstrip()])


def _in_order(one: Option) -> str:
    return (one.letter or one.name).lower()


def _read(command: Subcommand, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of options, and the words that belong to no option."""
    given: dict[str, str] = {}
    unused: list[str] = []
    words = list(arguments)
    last: Option | None = None
    while words:
        word = words.pop(0)
        if last is not None and word.lower() in (TRUE, "false"):
            given[last.name] = word.lower()  # `-l true`: Apache's tools skip the word
            last = None
            continue
        last = None
        if len(word) < 2 or word[0] != "-":
            unused.append(word)
            continue
        option, value, rest = _match(command, word)
        if option.flag:
            given[option.name] = TRUE if value is None else value.lower()
            last = option
            if rest:
                words.insert(0, f"-{rest}")
            continue
        if value is None:
            if not words:
                raise command.wrong(f"{option.shown} needs a value")
            value = words.pop(0)
        given[option.name] = value
    kept = {name: value for name, value in given.items() if value != "false" or not _is_flag(command, name)}
    return kept, unused


def _is_flag(command: Subcommand, name: str) -> bool:
    return any(one.flag for one in command.every_option if one.name == name)


def _match(command: Subcommand, word: str) -> tuple[Option, str | None, str]:
    """Return the option of a word, the value in the same word, and the flags that are joined to it."""
    options = command.every_option
    body = word.lstrip("-") if word.startswith("--") else word[1:]
    name, equals, text = body.partition("=")
    value = text if equals else None
    if not word.startswith("--"):
        for one in options:
            if one.letter == name:
                return one, value, ""
    named = [one for one in options if one.name == name]
    begins = named or [one for one in options if name and one.name.startswith(name)]
    if len(begins) == 1:
        return begins[0], value, ""
    if len(begins) > 1:
        raise command.wrong(f"{word} may be {' or '.join(f'--{one.name}' for one in begins)}; write more of it")
    if not word.startswith("--"):
        for one in options:
            if one.letter and len(one.letter) == 1 and body.startswith(one.letter):
                return (one, None, body[1:]) if one.flag else (one, body[1:], "")
    known = [f"--{one.name}" for one in options]
    near = nearest(f"--{name}", known)
    raise command.wrong(f"{word}: there is no such option" + (f"; did you mean {near}?" if near else ""))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a wrong one, in any case; None if none is similar."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name[:64].lower(), by_lower, 1)
    return by_lower[found[0]] if found else None
