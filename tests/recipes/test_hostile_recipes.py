"""Recipes as they should not be: refused in bounded time, with a reason."""

import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel

from keras_dml.recipes import RecipeError, dump, load, validate
from keras_dml.recipes.files import recipe_type

GOOD = """
name: good
data: {name: glyphs}
method: {name: baseline, loss: margin}
"""


@pytest.fixture(autouse=True)
def _in_bounded_time() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < 60  # What hangs takes for ever.


def write(path: Path, text: str = GOOD) -> Path:
    path.write_text(text)
    return path


def refused(path: Path | str, *settings: str) -> str:
    with pytest.raises(RecipeError) as error:
        load(path, settings)
    assert len(str(error.value)) < 5000
    return str(error.value)


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/x", "a/b", "a\\b", "", ".", "..", "-x", ".hidden",
     " a", "a ", "a.", "a\nb", "a\x00b", "a\x1b[2J", "a:b", "x" * 101],
)  # fmt: skip
def test_a_name_is_that_of_a_file(name: str, tmp_path: Path) -> None:
    content = {"name": name, "data": {"name": "glyphs"}}
    with pytest.raises(RecipeError, match="`name`: must be a valid folder"):
        validate(content | {"method": {"name": "baseline"}}, "it")


@pytest.mark.parametrize(
    "name",
    ["a", "Größe-2", "_x", "r50+margin-1.5", "my cars (2)", "margin, β=1.2"],
)
def test_names_that_are_fine(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml")
    assert load(path, [f"name={name}"]).name == name


NINE = ", ".join(9 * ["*{0}"])
LEVELS = "abcdefghij"
BOMB = "a0: &a {x: 1}\n" + "".join(
    f"{now}0: &{now} [{NINE.format(before)}]\n"
    for before, now in zip(LEVELS, LEVELS[1:], strict=False)
)
MERGED = BOMB.replace("[*", "{<<: [*").replace("]", "]}")

TEXTS = {
    "nine aliases, nine levels": (BOMB, "more than 10,000 keys"),
    "keys that merge": (MERGED, "more than 10,000 keys"),
    "an alias of itself": ("a: &a [*a, *a]", "more than 10,000 keys"),
    "too many keys": (
        "".join(f"k{i}: 1\n" for i in range(10_001)), "more than 10,000 keys"),
    "1,000 brackets": ("a: " + "[" * 1_000, "nested too deep"),
    "1,000 braces": ("{a: " * 1_000, "nested too deep"),
    "2 MB of spaces": (" " * 2**21, "more than 1,048,576 bytes"),
    "a long value": (f"{GOOD}\nepochs: " + "x" * 20_000, "`epochs`"),
    "a long number": ("a: " + "9" * 9_000, "Exceeds the limit"),
    "base 60": (f"{GOOD}\nepochs: " + "1:" * 4000 + "1", "`epochs`"),
    "objects": ("a: !!python/object/apply:os.system [ls]", "not YAML"),
    "two documents": ("a: 1\n---\nb: 2", "not YAML"),
    "a key that is a list": ("? [a]\n: b", "not YAML"),
    "keys that are numbers": (f"{GOOD}\n1: 2\nnull: 3", "cannot be used"),
    "a date": (f"{GOOD}\nepochs: 2020-01-01", "`epochs`"),
    "zero bytes": ("a: \0", "not YAML"),
    "a base with a zero byte": ('base: "a\\0b"', "must be a path"),
    "a base that is a number": ("base: 3", "must be a path"),
    "bases in bases": ("base: [[a.yaml]]", "must be a path"),
    "a base without an end": ("base: /dev/zero", "a pipe or a device"),
    "a base that is a folder": ("base: .", "it is a folder"),
    "a base that is a link to itself": ("base: loop", "cannot be read"),
    "a base that is a pipe": ("base: pipe", "a pipe or a device"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_refused(name: str, tmp_path: Path) -> None:
    text, message = TEXTS[name]
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    assert message in refused(write(tmp_path / "a.yaml", text))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\xfe")
    assert "cannot be read" in refused(tmp_path / "a.yaml")


def chain(folder: Path, length: int, base: str = "base: {0}.yaml") -> Path:
    """A recipe with so many files, each the base of the one before."""
    write(folder / f"{length}.yaml")
    for i in range(1, length):
        write(folder / f"{i}.yaml", base.format(i + 1))
    return folder / "1.yaml"


def test_a_chain_of_bases_ends(tmp_path: Path) -> None:
    assert load(chain(tmp_path, 16)).name == "good"
    assert "at most 16 deep" in refused(chain(tmp_path, 17))


def test_each_base_is_read_once(tmp_path: Path) -> None:
    path = chain(tmp_path, 16, "base: [{0}.yaml, ./{0}.yaml]")
    assert load(path).name == "good"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs" + ".a" * 3000 + "=1", "nested too deep"),
        ("epochs=" + "[" * 1000, "nested too deep"),
        ("epochs=.inf", "`epochs`"),
        ("optimizer.learning_rate=.inf", "finite number"),
        ("optimizer.learning_rate=.nan", "finite number"),
        ("optimizer.momentum=2", "less than or equal to 1"),
        ("optimizer.clipnorm=0", "greater than 0"),
        ("seed=-1", "greater than or equal to 0"),
        ("seed=4294967296", "less than or equal to 4294967295"),
        ("epochs=1000001", "less than or equal to 1000000"),
        ("batches.steps_per_epoch=1000000000", "or equal to 1000000"),
        ("batches={steps_per_epoch: 1000000, images_per_class: 300}",
         "at most 268,435,456 images"),
        ("view.resize=1000000000", "less than or equal to 32768"),
        ("augmentation.resize=1000000000", "less than or equal to 32768"),
        ("augmentation.pad=1000000000", "less than or equal to 32768"),
        ("backbone.input_shape=[1000000, 1000000, 3]", "equal to 65536"),
        ("backbone.input_shape=[-1, 8, 3]", "greater than or equal to 1"),
        ("method.embedding_dim=1000000000", "less than or equal to 65536"),
        ("method={name: diva, queue_size: 1000000000000}", "to 16777216"),
        ("method.loss={name: proxy_nca, num_classes: 1000000000000}",
         "must be at most 10,000,000"),
        ("evaluation.metrics=[recall@1000000000000000000000000000000]",
         "'recall@1000000000000000000000000000000'"),
        ("rate_multipliers={'(': 2.0}", "must be regular expressions"),
        ("rate_multipliers={'a{99999999999}': 2.0}", "must be regular"),
        ("rate_multipliers={head: -2}", "greater than or equal to 0"),
    ],
)  # fmt: skip
def test_values_out_of_range(
    setting: str, message: str, tmp_path: Path
) -> None:
    assert message in refused(write(tmp_path / "a.yaml"), setting)


def numbers(kind: Any, said: tuple[Any, ...], where: str) -> Iterator[Any]:
    """Each type of number in a schema: where it is, and what is said of it."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield from numbers(inside[0], (*said, *inside[1:]), where)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        for key, field in kind.model_fields.items():
            below = f"{kind.__name__}.{key}"
            yield from numbers(field.annotation, tuple(field.metadata), below)
    elif kind in (int, float):
        yield where, kind, said
    elif origin is not Literal:
        kept = () if origin in (tuple, dict, list) else said
        for x in inside:
            yield from numbers(x, kept, where)


def test_every_number_has_a_range() -> None:
    """Floats are finite; integers have a least and a largest value."""
    schema = recipe_type({})
    found = list(numbers(schema, (), "Recipe"))
    assert len(found) > 60
    assert schema.model_config["allow_inf_nan"] is False
    for where, kind, said in found:
        ends = {type(x) for x in said}
        if kind is int:
            assert ends & {annotated_types.Ge, annotated_types.Gt}, where
            assert ends & {annotated_types.Le, annotated_types.Lt}, where


def test_changes_of_a_recipe_are_refused_or_load(tmp_path: Path) -> None:
    draw = random.Random(0)
    text = dump(load(write(tmp_path / "a.yaml")))
    signs = "[]{}:,&*!|>'\"%@`#-?\n\t 019.e~\\\x00\x1bé"
    outcomes = set()
    for _ in range(60):
        changed = list(text)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(changed))
            changed[at : at + draw.randint(0, 3)] = draw.choices(
                signs, k=draw.randint(0, 3)
            )
        try:
            load(write(tmp_path / "b.yaml", "".join(changed)))
            outcomes.add("loads")
        except RecipeError as error:
            outcomes.add("refused")
            assert re.search(r"b\.yaml", str(error))
    assert outcomes == {"loads", "refused"}
