"""YAML of rule files as values with line numbers, within the bounds of RocketMQ's own reader.

The reader supports anchors, aliases and merge keys. It bounds nesting and the number of aliases, rejects tags of other
languages, and shares one object among the aliases of a value. So a short file cannot become a large one in memory.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple, TypeAlias

from tianzhou.errors import ConfigError

MAX_DEPTH: Final = 50
"""Maximum nesting depth of lists and mappings."""
MAX_ALIASES: Final = 50
"""Maximum number of aliases of lists and mappings in a file, as in RocketMQ's reader."""
_MERGE: Final = "tag:yaml.org,2002:merge"

Data: TypeAlias = "dict[str, Value] | list[Value] | Any"


class Value(NamedTuple):
    """A value in a file.

    Attributes:
        line: line where the value begins, from 1.
        data: a mapping by text, a list, or a Python scalar.
        odd_keys: whether a mapping has keys that are not texts; these keys are left out.
    """

    line: int
    data: Data
    odd_keys: bool = False


def load_values(text: str, source: str) -> Value | None:
    """Return the document of a file; None when the file has only blanks and comments.

    Args:
        text: the file's text.
        source: its path, for errors.

    Raises:
        ConfigError: the text is no valid YAML; the error has file and line, and never quotes the text.
    """
    import yaml

    try:
        loader = _composer()(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        return None if node is None else _NodeReader().read(node)
    except yaml.YAMLError as error:
        # PyYAML's error text quotes the line, which may contain a secret.
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "somewhere"
        raise ConfigError(f"{source}: {where}: this is no YAML that can be read; correct the line") from None
    except _BoundError as error:
        raise ConfigError(f"{source}: {error}") from None
    except (ValueError, TypeError, RecursionError):
        raise ConfigError(f"{source}: a value cannot be read; put texts into quotes") from None


class _BoundError(Exception):
    """A document exceeds the maximum depth or number of aliases."""


@functools.cache
def _composer() -> Any:
    import yaml

    class Composer(yaml.SafeLoader):  # type: ignore[misc]
        """A safe loader that checks bounds before it builds a node."""

        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self._depth = 0
            self._aliases = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent) and isinstance(self.anchors.get(event.anchor), yaml.CollectionNode):
                self._aliases += 1
                if self._aliases > MAX_ALIASES:
                    raise _BoundError(f"line {line}: more than {MAX_ALIASES} aliases; write the values out")
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise _BoundError(f"line {line}: nested more than {MAX_DEPTH} deep")
            try:
                return super().compose_node(parent, index)
            finally:
                self._depth -= 1

    return Composer


class _NodeReader:
    """A converter of nodes into values, which converts each node once."""

    def __init__(self) -> None:
        import yaml

        self._known: dict[int, Value] = {}
        self._open: set[int] = set()
        self._scalars = yaml.constructor.SafeConstructor()
        self._mapping, self._sequence = yaml.MappingNode, yaml.SequenceNode

    def read(self, node: Any) -> Value:
        """Return the value of a node."""
        found = self._known.get(id(node))
        if found is None:
            if id(node) in self._open:
                line = node.start_mark.line + 1
                raise _BoundError(f"line {line}: a value contains itself; write it out")
            self._open.add(id(node))
            found = self._known[id(node)] = self._read(node)
            self._open.discard(id(node))
        return found

    def _read(self, node: Any) -> Value:
        line = node.start_mark.line + 1
        if isinstance(node, self._mapping):
            return self._read_mapping(node, line)
        if isinstance(node, self._sequence):
            _check_tag(node, "seq")
            return Value(line, [self.read(one) for one in node.value])
        return Value(line, self._scalars.construct_object(node))

    def _read_mapping(self, node: Any, line: int) -> Value:
        _check_tag(node, "map")
        merged: dict[str, Value] = {}
        own: dict[str, Value] = {}
        odd_keys = False
        for key, value in node.value:
            if key.tag == _MERGE:
                # The first of several merged mappings has priority over the others. The node's own keys have priority
                # over all.
                merged = {**self._merged(value), **merged}
                continue
            name = self.read(key).data
            if isinstance(name, str):
                own[name] = self.read(value)
            else:
                odd_keys = True
        return Value(line, {**merged, **own}, odd_keys)

    def _merged(self, node: Any) -> dict[str, Value]:
        several = node.value if isinstance(node, self._sequence) else [node]
        found: dict[str, Value] = {}
        for one in several:
            data = self.read(one).data
            if not isinstance(data, dict):
                raise _BoundError(f"line {one.start_mark.line + 1}: << needs a mapping; correct the line")
            found = {**data, **found}
        return found


def _check_tag(node: Any, kind: str) -> None:
    if node.tag != f"tag:yaml.org,2002:{kind}":
        raise _BoundError(f"line {node.start_mark.line + 1}: this is no YAML that can be read; leave the tag out")
