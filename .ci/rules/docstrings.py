"""What docstrings say of losses, methods and samplers: pages are made of them.

Tests run their examples.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

from keras_dml import data, losses, methods
from keras_dml.losses import distances, mining, regularizers
from rules.tree import Finding, Tree, line_of


def own(module: Any, is_kind: Any) -> dict[str, Any]:
    """What is defined in a module, and public."""
    return {
        name: value
        for name, value in vars(module).items()
        if is_kind(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


LOSSES = {
    entry.value.__name__: entry.value
    for registry in (losses.LOSSES, losses.COMPOSITES)
    for entry in registry.values()
}
MINERS = {
    name: getattr(mining, name)
    for name in ("Selection", "MultiSimilarity", "DistanceWeighted")
}
DISTANCES = {e.value.__name__: e.value for e in distances.DISTANCES.values()}
EQUATIONS = {
    **LOSSES,
    **DISTANCES,
    "nce": losses.nce,
    **own(regularizers, inspect.isfunction),
    **{x.name: x.value for x in methods.METHODS.values()},
    # Selection picks, and computes nothing.
    **{name: x for name, x in MINERS.items() if name != "Selection"},
}
SAMPLERS = [
    value
    for value in vars(data).values()
    if inspect.isclass(value)
    and issubclass(value, data.Sampler)
    and not inspect.isabstract(value)
]
SECTION = re.compile(r"^([A-Z][\w ]+):\n((?:    .*\n|\n)+)", re.M)
SHOWN = re.compile(r"^\$\$\n(.*?)^\$\$$", re.M | re.S)
PEERS = (
    "pytorch-metric-learning", "TF Similarity", "TensorFlow Addons",
    "sentence-transformers", "Elsewhere", "Here",
)  # fmt: skip
NONE = "None of the compared libraries has an equivalent"


def check(tree: Tree) -> Iterator[Finding]:
    for name, value in EQUATIONS.items():
        for text in of_equations(inspect.getdoc(value) or ""):
            yield at(value, f"{name}: {text}")
    for name, value in LOSSES.items():
        for section in ("When to use it", "Labels"):
            if len(sections(value).get(section, "")) <= 10:
                yield at(value, f'{name} has no "{section}"')
    for name, value in {**LOSSES, **MINERS, **DISTANCES}.items():
        for text in of_names(sections(value).get("Also known as", "")):
            yield at(value, f"{name}: {text}")
    for name, entry in methods.METHODS.items():
        text = inspect.getdoc(entry.value) or ""
        needed = ["What it computes", "Args:", "Returns:"]
        if name != "baseline":
            needed += ["Deviations:", "Reference:"]
        for part in needed:
            if part not in text:
                yield at(entry.value, f'{name} has no "{part}"')
    for value in SAMPLERS:
        for text in of_sampler(value):
            yield at(value, text)
    yield from migration(tree)


def at(value: Any, text: str) -> Finding:
    value = inspect.unwrap(value)
    line = inspect.getsourcelines(value)[1]
    return Finding(Path(inspect.getfile(value)), line, text)


def sections(value: Any) -> dict[str, str]:
    text = (inspect.getdoc(value) or "") + "\n"
    return {name: inspect.cleandoc(x) for name, x in SECTION.findall(text)}


def of_equations(text: str) -> Iterator[str]:
    """There is one on lines of its own, and all are drawn as MathML."""
    shown = SHOWN.findall(text)
    if not shown:
        yield "there is no equation"
    inline = re.findall(r"\$([^$]+)\$", SHOWN.sub("", text))
    for equation in shown + inline:
        # What the converter does not know stays as it was written.
        is_drawn = "\\" not in convert(" ".join(equation.split()))
        if not is_drawn or equation.count("{") != equation.count("}"):
            yield f"this equation cannot be drawn: {equation.strip()}"


def of_names(section: str) -> Iterator[str]:
    """Those of pytorch-metric-learning exist: see tests/parity/."""
    if not section:
        yield 'there is no "Also known as"'
    if not section.startswith(NONE):
        for line in re.findall(r"^- (.*)", section, re.M):
            if line.split(":")[0] not in PEERS:
                yield f"this names no compared library: {line}"


def of_sampler(value: Any) -> Iterator[str]:
    text = inspect.getdoc(value) or ""
    for section in ("Args", "Raises", "Also known as", "Example"):
        is_needed = (value.__name__, section) != (
            "HardClassBalanced",
            "Example",
        )
        if is_needed and f"\n{section}:\n" not in text:
            yield f'there is no "{section}"'


def migration(tree: Tree) -> Iterator[Finding]:
    """Losses name what the tables of docs/migration/ compare them with."""
    row = re.compile(r"^\| `(?:tfa\.)?losses\.(\w+)\(.*", re.M)
    for page in sorted(tree.docs.glob("migration/*.md")):
        for found in row.finditer(tree.text(page)):
            mine = re.findall(r"dml\.losses\.(\w+)\(", found[0])
            if len(mine) != 1:
                continue
            loss = getattr(losses, mine[0])
            if found[1] not in sections(loss).get("Also known as", ""):
                text = f"the docstring of {mine[0]} does not name {found[1]}"
                yield Finding(page, line_of(found), text)
