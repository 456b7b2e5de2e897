"""YAML, read as from a stranger: its size and nesting are bounded."""

import os
from typing import Any

import yaml

from keras_dml.utils.files import read_regular

MOST_BYTES = 2**20
MOST_DEPTH = 32
MOST_VALUES = 10_000
TOO_DEEP = f"it is nested more than {MOST_DEPTH} deep"


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """What a file says; see `parse_yaml`.

    Raises:
        OSError: If it cannot be read, or is no regular file.
        ValueError: As `parse_yaml`, or if it has over 2²⁰ bytes.
    """
    return parse_yaml(read_regular(path, MOST_BYTES).decode("utf-8"))


def parse_yaml(text: str) -> Any:
    """What a text says, of at most 10,000 keys and values, 32 deep.

    Those of an alias count each time.

    Raises:
        ValueError: If it is not YAML, or exceeds that.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        # Before values are made of it: keys that merge (`<<`) multiply, too.
        check_size(node)
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {error}") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def check_size(content: Any) -> None:
    """Raises `ValueError` for nodes of YAML, or values, beyond the limits."""
    count, waiting = 1, [(content, 0)]
    while waiting:
        value, depth = waiting.pop()
        below = _below(value)
        count += len(below)
        if below and depth > MOST_DEPTH:
            raise ValueError(TOO_DEEP)
        if count > MOST_VALUES:
            raise ValueError(
                f"it has more than {MOST_VALUES:,} keys and values, counting "
                "those of every alias"
            )
        waiting += [(x, depth + 1) for x in below]


def _below(value: Any) -> list[Any]:
    if isinstance(value, yaml.MappingNode):
        return [x for pair in value.value for x in pair]
    if isinstance(value, yaml.Node):
        value = value.value
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple) else []


class _Loader(yaml.SafeLoader):
    """Without YAML 1.1's numbers such as 1:30, which is 90 there."""


def _plain_number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    if ":" in node.value:
        return node.value
    if node.tag.endswith("int"):
        return loader.construct_yaml_int(node)
    return loader.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _plain_number)
