"""Recipe files, each merged onto its bases."""

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from keras_dml.recipes.included import folder, locate, names, paths
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import read_regular, write_atomically

MAX_BYTES = 2**20
"""The size of the largest file that is read."""

_LONGEST_NUMBER = 400
"""Maximum number of characters; Python prints at most 4,300 digits."""

_IN_ORDER = ("rate_multipliers", "decay_multipliers")
"""Mappings in which the first matching pattern counts."""


class RecipeError(ValueError):
    """A recipe is invalid; the message says why, and how to fix it."""


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with `change` on top; neither is altered.

    Mappings are merged unless their `name` differs, as another method has
    other keys. A backbone has the same keys under any name. Anything else is
    replaced, and so is a mapping by an empty one. A loss that is only a name
    can be given arguments. Where the order of keys counts, those of `change`
    come first.
    """
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if key == "loss" and isinstance(old, str) and isinstance(value, dict):
            from keras_dml.losses.combined import is_several  # Imports Keras.

            names_one = {"name", "class_name"} & set(value)
            if not names_one and not is_several(value):
                old = {"name": old}
        if isinstance(old, dict) and isinstance(value, dict) and value:
            is_other = value.get("name", old.get("name")) != old.get("name")
            replaces = is_other and key != "backbone"
            if not replaces:
                both = merge(old, value)
                order = (*value, *both) if key in _IN_ORDER else both
                value = {x: both[x] for x in order}
        merged[key] = value
    return merged


def with_origin(content: dict[str, Any], is_included: bool) -> dict[str, Any]:
    """Marks whether `batches` may have fewer classes than they ask for.

    A user's own number of classes must be met; that of an included recipe not.
    """
    batches = content.get("batches")
    if not isinstance(batches, dict) or "classes_per_batch" not in batches:
        return content
    return {**content, "batches": {"fewer_classes": is_included, **batches}}


def complete(
    path: str | os.PathLike[str], settings: Sequence[str] = ()
) -> dict[str, Any]:
    """A recipe's content with settings on top; see `keras_dml.recipes.load`."""
    content, _ = _read(locate(path))
    for setting in settings:
        change = with_origin(parse_setting(setting), is_included=False)
        content = merge(content, change)
    return content


def _read(
    path: Path, above: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Merges a file onto its bases; returns it and all files, its own first.

    `above` is the chain of files that included it.
    """
    chain = (*above, os.path.realpath(path))
    if chain[-1] in above:
        raise RecipeError(
            "Recipes must not form a cycle of bases. Received: "
            f"{' → '.join(chain)}."
        )
    content, files = _content(path), [chain[-1]]
    bases = content.pop("base", None) or []
    inherited: dict[str, Any] = {}
    for base in bases if isinstance(bases, list) else [bases]:
        if not isinstance(base, str):
            raise RecipeError(
                f"`base` of the recipe {path} must be a path or name, or a "
                f"list of them. Received: {base!r}."
            )
        below, base_files = _read(locate(base, path.parent), chain)
        inherited = merge(inherited, below)
        files += base_files
    is_included = Path(chain[-1]).is_relative_to(folder().resolve())
    return merge(inherited, with_origin(content, is_included)), files


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
        for path in _read(source)[1]
    }
    new = {
        path: content
        for path, content in contents.items()
        if not (path.is_file() and path.read_bytes() == content)
    }
    existing = [str(path) for path in new if path.exists()]
    if existing and not overwrite:
        raise FileExistsError(
            "Copied files must not replace other files. Received: "
            f"{', '.join(existing)}. Use another folder, or --force "
            "(`overwrite=True`) to replace them."
        )
    for path, content in new.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return list(contents)


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Parses a regular file; a ValueError if it is large, or not YAML."""
    return parse_yaml(read_regular(path, MAX_BYTES).decode("utf-8"))


def parse_yaml(text: str) -> Any:
    """Parses YAML; raises `ValueError` if the text is invalid."""
    try:
        return yaml.load(text, _Loader)
    # PyYAML stumbles over values that do not have the type of their tag.
    except (yaml.YAMLError, AttributeError, LookupError, ValueError) as error:
        raise ValueError(f"it is not YAML: {error}") from None


def parse_setting(setting: str) -> dict[str, Any]:
    """ "a.b=c" → {"a": {"b": c}}."""
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


class _Loader(yaml.SafeLoader):
    """Loads YAML without YAML 1.1's numbers such as 1:30, which is 90 there.

    A key that occurs twice is an error, as in YAML; PyYAML takes the last.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place] and isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} occurs twice, leave out one",
                    problem_mark=node.value[place][0].start_mark,
                )
        return super().construct_mapping(node, deep)


def _plain_number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    if ":" in node.value:
        return node.value
    if len(node.value) > _LONGEST_NUMBER:
        raise yaml.constructor.ConstructorError(
            problem=f"the number {node.value[:20]}… has {len(node.value):,} "
            f"characters, and must have at most {_LONGEST_NUMBER}",
            problem_mark=node.start_mark,
        )
    if node.tag.endswith("int"):
        return loader.construct_yaml_int(node)
    return loader.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _plain_number)


def nearest_key(name: str, cutoff: float) -> str | None:
    """The dotted key of included recipes that is most similar to `name`.

    Its last part or the whole key is compared. None if no similarity reaches
    `cutoff`, from 0 to 1; see `difflib`.
    """
    keys: dict[str, str] = {}
    for path in sorted(paths().values(), key=lambda x: len(x.parts)):
        for key in _keys(read_yaml(path)):
            keys.setdefault(key.rpartition(".")[2], key)
            keys.setdefault(key, key)
        if name in keys:
            return keys[name]
    close = difflib.get_close_matches(name, keys, n=1, cutoff=cutoff)
    return keys[close[0]] if close else None


def _keys(content: Any, above: str = "") -> Iterator[str]:
    if isinstance(content, dict):
        for key, below in content.items():
            yield f"{above}{key}"
            yield from _keys(below, f"{above}{key}.")
