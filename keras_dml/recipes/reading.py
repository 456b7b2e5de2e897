"""YAML, read as from a stranger: all that it may take is bounded."""

import os
from typing import Any

import yaml

from keras_dml.utils.files import read_regular

MOST_BYTES = 2**20
MOST_DEPTH = 32
MOST_VALUES = 10_000
LONGEST = {"a number": 100, "a key or value": 10_000}


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """What a file says; see `parse_yaml`.

    Raises:
        OSError: If it cannot be read, or is no regular file.
        ValueError: As `parse_yaml`, or if it has over 2²⁰ bytes.
    """
    return parse_yaml(read_regular(path, MOST_BYTES).decode("utf-8"))


def parse_yaml(text: str) -> Any:
    """What a text says, of at most 10,000 keys and values, 32 deep.

    Those of an alias count each time, and none has over 10,000 characters.

    Raises:
        ValueError: If it is not YAML, or exceeds that.
    """
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        # Before values are made of it: keys that merge (`<<`) multiply, too.
        _check_aliases(node)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Loader(yaml.SafeLoader):
    """Composes no more than may be."""

    _count = _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._count += 1
        self._depth += 1
        _check_count(self._count)
        _check_depth(self._depth)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode):
            kind = node.tag.rpartition(":")[2]
            what = "a number" if kind in ("int", "float") else "a key or value"
            longest = LONGEST[what]
            if len(node.value) > longest:
                raise ValueError(f"{what} has more than {longest:,} characters")
        return node


def _plain_number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    """A number; but not YAML 1.1's 1:30, which is 90 there, and no number."""
    if ":" in node.value:
        return node.value
    if node.tag.endswith("int"):
        return loader.construct_yaml_int(node)
    return loader.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _plain_number)


def check_nesting(content: Any) -> None:
    """Raises `ValueError` for values nested more deeply than a file's may."""
    waiting = [(content, 0)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, dict | list | tuple):
            _check_depth(depth)
            below = value.values() if isinstance(value, dict) else value
            waiting += [(x, depth + 1) for x in below]


def _check_aliases(root: yaml.Node) -> None:
    """Counts every value, also those that are repeated by a reference."""
    count, waiting = 1, [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        _check_depth(depth)
        if isinstance(node, yaml.ScalarNode):
            continue
        pairs = isinstance(node, yaml.MappingNode)
        count += len(node.value) * (2 if pairs else 1)
        _check_count(count)
        below = sum(node.value, ()) if pairs else node.value
        waiting += [(x, depth + 1) for x in below]


def _check_count(count: int) -> None:
    if count > MOST_VALUES:
        raise ValueError(
            f"it has more than {MOST_VALUES:,} keys and values, counting those "
            "of every alias"
        )


def _check_depth(depth: int) -> None:
    if depth > MOST_DEPTH:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
