"""Faults of a configuration, collected so that one error names all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tianzhou.errors import ConfigError


class Faults:
    """Collects the faults of a configuration.

    Args:
        prefix: text before each fault, such as the name of the source.

    Attributes:
        texts: a sentence for each fault.
        keys: keys whose values are faulty; a check of several keys leaves out what contains one.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.texts: list[str] = []
        self.keys: set[str] = set()

    @classmethod
    def of(cls, given: Faults | None) -> Faults:
        """Return the given collection, or a new one."""
        return cls() if given is None else given

    def note(self, text: str, key: str = "") -> None:
        """Add a fault.

        Args:
            text: a sentence that names the source, the value and the remedy.
            key: the key whose value is faulty.
        """
        if (whole := self._prefix + text) not in self.texts:
            self.texts.append(whole)
        if key:
            self.keys.add(key)

    @contextmanager
    def noted(self, key: str = "") -> Iterator[None]:
        """Add the faults of a `ConfigError` that the block raises; the block ends there.

        Args:
            key: the key whose value the block checks.
        """
        try:
            yield
        except ConfigError as error:
            for text in error.texts:
                self.note(text, key)

    def mentioned(self, text: str) -> bool:
        """Whether a text contains a key with a faulty value, so that the text may be a consequence of that value."""
        return any(key in text for key in self.keys)

    def check(self) -> None:
        """Raise one error for all faults.

        Raises:
            ConfigError: there are faults; names each.
        """
        if self.texts:
            raise ConfigError(*self.texts)
