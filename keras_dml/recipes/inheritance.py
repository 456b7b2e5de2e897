"""Files of recipes, each on top of those that it is based on.

They may be a stranger's: of bounded size, and YAML without objects.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from keras_dml.recipes.included import (
    folder,
    locate,
    names,
    paths,
)
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import read_regular, write_atomically

MOST_BYTES = 2**20
"""Of a file, as it may be a stranger's."""

_MOST_VALUES = 10_000

TOO_DEEP = "it is nested too deep"

_MOST_BASES = 16

_IN_ORDER = ("rate_multipliers", "decay_multipliers")
"""Mappings of which the first pattern that matches counts."""


class RecipeError(ValueError):
    """A recipe is invalid; the message says why, and how to fix it."""


def _is_several(given: Any) -> bool:
    from keras_dml.losses.combined import is_several  # It imports Keras.

    return is_several(given)


def merge(
    base: dict[str, Any],
    change: dict[str, Any],
    is_several: Callable[[Any], bool] = _is_several,
) -> dict[str, Any]:
    """`base` with `change` on top; neither is altered.

    Mappings are merged, unless they say that they are about something of
    another `name`: another method has other keys. A backbone has the same
    keys by any name. Anything else is replaced, and so is a mapping by an
    empty one. A loss that is only a name can be given arguments. Where the
    order of keys counts, those of `change` come first.

    `is_several` says whether a mapping without a name is several losses, not
    arguments of one.
    """
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if key == "loss" and isinstance(old, str) and isinstance(value, dict):
            names_one = {"name", "class_name"} & set(value)
            if not names_one and not is_several(value):
                old = {"name": old}
        if isinstance(old, dict) and isinstance(value, dict) and value:
            is_other = value.get("name", old.get("name")) != old.get("name")
            replaces = is_other and key != "backbone"
            if not replaces:
                both = merge(old, value, is_several)
                order = (*value, *both) if key in _IN_ORDER else both
                value = {x: both[x] for x in order}
        merged[key] = value
    return merged


def with_origin(content: dict[str, Any], is_included: bool) -> dict[str, Any]:
    """A file, or a setting, that says whether its batches may be too large.

    A number of classes of the user's own is met or refused.
    """
    batches = content.get("batches")
    if not isinstance(batches, dict) or "classes_per_batch" not in batches:
        return content
    return {**content, "batches": {"fewer_classes": is_included, **batches}}


class RecipeFiles:
    """Files of one recipe, each of which is read once."""

    def __init__(self, is_several: Callable[[Any], bool] = _is_several) -> None:
        self._complete: dict[str, dict[str, Any]] = {}
        self._merge = partial(merge, is_several=is_several)

    def parts(self, path: Path) -> list[str]:
        """The files that a recipe is made of: its own, then its bases'."""
        self.read(path)
        # A recipe is complete after its bases.
        return list(reversed(self._complete))

    def complete(
        self, path: str | os.PathLike[str], settings: Sequence[str] = ()
    ) -> dict[str, Any]:
        """What a recipe says with settings; see `keras_dml.recipes.load`."""
        content = self.read(locate(path))
        for setting in settings:
            change = with_origin(parse_setting(setting), is_included=False)
            content = self._merge(content, change)
        return content

    def included(self) -> list[dict[str, Any]]:
        """Those that were read and come with the package, complete."""
        root = folder().resolve()
        return [
            content
            for place, content in self._complete.items()
            if Path(place).is_relative_to(root)
        ]

    def read(self, path: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """A file on top of its bases; `above` are those that it is one of."""
        place = os.path.realpath(path)
        chain = (*above, place)
        if place in above:
            raise RecipeError(
                "Recipes must not form a cycle of bases. Received: "
                f"{' → '.join(chain)}."
            )
        if len(chain) > _MOST_BASES:
            raise RecipeError(
                f"A recipe must have bases nested at most {_MOST_BASES} deep. "
                f"Received: {' → '.join(chain)}. Merge some of them into one "
                "file."
            )
        if place not in self._complete:
            self._complete[place] = self._based(path, chain)
        return self._complete[place]

    def _based(self, path: Path, chain: tuple[str, ...]) -> dict[str, Any]:
        content = _content(path)
        bases = content.pop("base", None) or []
        inherited: dict[str, Any] = {}
        for base in bases if isinstance(bases, list) else [bases]:
            if not isinstance(base, str) or "\0" in base:
                raise RecipeError(
                    f"`base` of the recipe {path} must be a path or name, or a "
                    f"list of them. Received: {base!r}."
                )
            below = locate(base, path.parent)
            inherited = self._merge(inherited, self.read(below, chain))
        is_included = Path(chain[-1]).is_relative_to(folder().resolve())
        return self._merge(inherited, with_origin(content, is_included))


def _content(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path)
    except OSError as error:
        near = did_you_mean("/".join(path.with_suffix("").parts[-2:]), names())
        raise RecipeError(
            f"The recipe {path} cannot be read: {error.strerror}.{near} Use "
            "`keras-dml recipes` to list the included recipes."
        ) from None
    except ValueError as error:
        raise RecipeError(
            f"The recipe {path} cannot be read: {error}."
        ) from None
    if not isinstance(content, dict):
        raise RecipeError(
            f"The recipe {path} must be a mapping of keys to values. "
            f"Received: {type(content).__name__}."
        )
    return content


def copy(
    name: str,
    destination: str | os.PathLike[str] = "recipes",
    overwrite: bool = False,
) -> list[Path]:
    """Copies an included recipe together with its bases.

    The files keep their relative paths under `destination`, so each recipe
    finds its bases there.

    Args:
        name: Name of an included recipe, see `names`.
        destination: The folder to copy to; it is created if necessary.
        overwrite: Whether to replace other files with the same paths.

    Returns:
        The paths of the copied files, the recipe itself first.

    Raises:
        RecipeError: If there is no such recipe.
        FileExistsError: If another file has the same path, unless `overwrite`.
            Nothing is written in this case.
    """
    source = paths().get(name)
    if source is None:
        raise RecipeError(
            "There is no included recipe "
            f"{name!r}.{did_you_mean(name, names())} Use `keras-dml recipes` "
            "to list them."
        )
    root = os.path.realpath(folder())
    contents = {
        Path(destination, os.path.relpath(path, root)): Path(path).read_bytes()
        for path in RecipeFiles().parts(source)
    }
    new = {
        path: content
        for path, content in contents.items()
        if not (path.is_file() and path.read_bytes() == content)
    }
    others = [str(path) for path in new if path.exists()]
    if others and not overwrite:
        raise FileExistsError(
            "Copied files must not replace other files. Received: "
            f"{', '.join(others)}. Use another folder, or --force "
            "(`overwrite=True`) to replace them."
        )
    for path, content in new.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return list(contents)


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """What a file says.

    Raises:
        OSError: If it cannot be read, or is no regular file.
        ValueError: As `parse_yaml`, or if it has over 2²⁰ bytes.
    """
    return parse_yaml(read_regular(path, MOST_BYTES).decode("utf-8"))


def parse_yaml(text: str) -> Any:
    """What a text says, of at most 10,000 keys and values.

    Those of an alias count each time.

    Raises:
        ValueError: If it is not YAML, or exceeds that.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        # Before values are made of it: keys that merge (`<<`) multiply, too.
        _check_count(node)
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {error}") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def parse_setting(setting: str) -> dict[str, Any]:
    """ "a.b=c" → {"a": {"b": c}}.

    Raises:
        RecipeError: If there is no "=", or the value is not YAML.
    """
    keys, separator, text = setting.partition("=")
    if not separator or not keys:
        raise RecipeError(
            "A setting must have the form key.key=value. Received: "
            f"{setting!r}. Use for instance epochs=4 or method.num_learners=8."
        )
    try:
        value: Any = parse_yaml(text)
        for key in reversed(keys.split(".")):
            value = {key: value}
    except ValueError as error:
        raise RecipeError(
            f"The setting {setting[:200]!r} cannot be read: {error}."
        ) from None
    return dict(value)


def _check_count(node: yaml.Node | None) -> None:
    count, waiting = 1, [node]
    while waiting and count <= _MOST_VALUES:
        value = getattr(waiting.pop(), "value", None)
        for item in value if isinstance(value, list) else ():
            below = item if isinstance(item, tuple) else (item,)
            waiting.extend(below)
            count += len(below)
    if count > _MOST_VALUES:
        raise ValueError(
            f"it has more than {_MOST_VALUES:,} keys and values, counting "
            "those of every alias"
        )


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


def with_key(name: str) -> str | None:
    """The dotted key of which `name` is the last part or all.

    It is one that included recipes set; None if none of them does.
    """
    for path in sorted(paths().values(), key=lambda x: len(x.parts)):
        for key in _keys(read_yaml(path)):
            if key == name or key.endswith(f".{name}"):
                return key
    return None


def _keys(content: Any, above: str = "") -> Iterator[str]:
    if isinstance(content, dict):
        for key, below in content.items():
            yield f"{above}{key}"
            yield from _keys(below, f"{above}{key}.")
