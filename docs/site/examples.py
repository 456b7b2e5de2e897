"""Runs an example of every loss and method: `python docs/site/examples.py`.

Writes what the pages of the reference show of them, `reference.json`, and the
table in docs/losses/README.md. `.ci/lint` fails where a text of these is
another, and tests/test_reference.py where a number is.
"""

import ast
import contextlib
import inspect
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_dml as dml
from keras_dml.losses import COMPOSITES, LOSSES, ProxyLoss
from keras_dml.methods import METHODS
from keras_dml.utils.registry import Entry

Facts = dict[str, Any]

DOCS = Path(__file__).parents[1]
DATA = DOCS / "site" / "reference.json"
OVERVIEW = DOCS / "losses" / "README.md"
TABLE = re.compile(r"^\| loss \|.*?(?=^$|\Z)", re.M | re.S)
CELL = 90

FAMILIES = {
    "_ranking": "Ranking",
    "_histogram": "Ranking",
    "_softmax": "Softmax over a batch",
    "_neighbors": "Softmax over a batch",
    "_hyperbolic": "Softmax over a batch",
    "_redundancy": "Two views, no negatives",
}
"""By modules; losses of others are of pairs, unless their class says more."""

WITHOUT_PLOT = {
    "BarlowTwinsLoss", "DynamicSoftMarginLoss", "FastAPLoss", "HISTLoss",
    "InstanceLoss", "IntraPairVarianceLoss", "VICRegLoss",
}  # fmt: skip
"""These depend on more than the cosines of a positive and a negative."""

NUMBERS = ("printed", "curves", "most")

COSINES = np.linspace(-0.96, 0.96, 97)
OTHER = 0.5

MAKE = {
    "MatryoshkaLoss": 'MatryoshkaLoss("multi_similarity", dims=(2, 4, 8))',
    "distillation": (
        'distillation("small_convnet", embedding_dim=64, teacher='
        'dml.methods.baseline("small_convnet"))'
    ),
    "diva": (
        'diva("small_convnet", embedding_dim=66, '
        'tasks=("discriminative", "shared", "intra"))'
    ),
    "hdc": 'hdc("small_convnet", embedding_dim=66)',
    "dreml": 'dreml("small_convnet", embedding_dim=64, num_classes=4)',
    "s2sd": 's2sd("small_convnet", embedding_dim=64, target_dims=(128, 256))',
    "whitening": 'whitening("small_convnet", embedding_dim=8)',
}
TARGETS = {
    "divide_and_conquer": '{"label": labels, "learner": 0 * labels}',
    "mic": '{"label": labels, "surrogate": labels % 2}',
}

OF_A_LOSS = """\
import keras
import numpy as np
import keras_dml as dml

keras.utils.set_random_seed(0)
labels = np.repeat(np.arange(4), 4)
embeddings = np.random.default_rng(0).normal(size=(16, 8))
loss = dml.losses.{make}
loss.build(keras.layers.Layer(), embedding_dim=8)  # A MetricModel does it.
print(f"{{float(loss({arguments})):.4g}}")"""

OF_A_METHOD = """\
import keras
import numpy as np
import keras_dml as dml

keras.utils.set_random_seed(0)
images = np.random.default_rng(0).integers(0, 256, (16, 48, 48, 1))
labels = np.repeat(np.arange(4), 4)
model = dml.methods.{make}
model.compile("adam")
{fitted}"""

FITTED = """\
fitted = model.fit(images, {targets}, batch_size=16, verbose=0)
print(f"{{fitted.history['loss'][0]:.3g}}")"""

COMPUTED = """\
model.fit(images, labels)
print(f"{model.evaluate(images, labels, verbose=0):.3g}")"""
"""Of a method that takes no step, and so has no loss of one."""


def losses() -> Iterator[Entry[Any]]:
    """Those of this package, not what a user or a test has registered."""
    for entry in [*LOSSES.values(), *COMPOSITES.values()]:
        if entry.value.__module__.startswith("keras_dml."):
            yield entry


def texts() -> dict[str, dict[str, Facts]]:
    """All that there is to say without running anything."""
    return {
        "losses": {x.name: of_loss(x) for x in losses()},
        "methods": {
            name: {
                "definition": entry.definition,
                "code": OF_A_METHOD.format(
                    make=MAKE.get(
                        name, f'{name}("small_convnet", embedding_dim=64)'
                    ),
                    fitted=COMPUTED
                    if name == "whitening"
                    else FITTED.format(targets=TARGETS.get(name, "labels")),
                ),
            }
            for name, entry in METHODS.items()
        },
    }


def of_loss(entry: Entry[Any]) -> Facts:
    module = entry.value.__module__.rpartition(".")[2]
    family = FAMILIES.get(module, "Pairs and triplets")
    on_proxies = issubclass(entry.value, ProxyLoss)
    if entry.name in COMPOSITES:
        family = "Wrappers and sums"
    return {
        "class": entry.value.__name__,
        "title": inspect.getdoc(entry.value).partition(": ")[0],
        "definition": entry.definition,
        "family": "Proxies and classification" if on_proxies else family,
        "on_proxies": on_proxies,
        "code": code_of(entry.value),
    }


def code_of(loss: type) -> str:
    """The template with the call in the docstring's example, if it has one."""
    name = loss.__name__
    default = "(num_classes=4)" if issubclass(loss, ProxyLoss) else "()"
    made, arguments = called(loss)
    made = MAKE.get(name, made or name + default)
    code = OF_A_LOSS.format(make=made, arguments=arguments)
    built = eval(made, {**vars(dml.losses), "keras": keras})  # noqa: S307
    if "label_sets" in arguments:
        sets = "label_sets = np.eye(4, dtype=bool)[labels]\n"
        code = code.replace("embeddings =", f"{sets}embeddings =", 1)
    if not built.owns_variables:
        code = re.sub(r"loss\.build.*\n", "", code)
        if not getattr(built, "seed_generator", None):
            code = re.sub(r"keras\.utils\.set.*\n", "", code)
        if "keras." not in code:
            code = code.replace("import keras\n", "", 1)
    return code


def called(loss: type) -> tuple[str, str]:
    """How an example makes a loss, and what it calls it with."""
    doc = inspect.getdoc(loss) or ""
    example = doc.partition("\nExample:\n")[2].partition("\n\n")[0]
    made, arguments = "", "labels, embeddings"
    if ">>>" in example:  # What is worked out by hand is of few numbers.
        return made, arguments
    code = inspect.cleandoc(example).replace("```python", "").strip("`\n")
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Call):
            arguments = ", ".join(ast.unparse(x) for x in node.args)
        elif ast.unparse(node.func) == loss.__name__:
            made = made or ast.unparse(node).replace("'", '"')
    return made, arguments


def printed(code: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})  # noqa: S102
    return output.getvalue().strip()


def slopes(loss_type: type) -> tuple[list[list[int]], float]:
    """How a positive is pulled and a negative pushed, of a most of 1000.

    The derivatives of the loss by one cosine, while the other is `OTHER`.
    """
    value = value_of(loss_type)

    @tf.function(autograph=False)
    def derivatives(cosines: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(cosines)
            loss = value(cosines[0], cosines[1])
        return tape.gradient(loss, cosines)

    pull = [
        -derivatives(tf.constant([x, OTHER], "float32"))[0] for x in COSINES
    ]
    push = [derivatives(tf.constant([OTHER, x], "float32"))[1] for x in COSINES]
    curves = np.array([pull, push])
    most = float(np.max(curves))
    thousandths = np.round(1000 * curves / most).astype(int)
    return thousandths.tolist(), float(f"{most:.3g}")


def value_of(loss_type: type) -> Callable[[Any, Any], Any]:
    """A loss as a function of the cosines of a positive and of a negative."""
    on_proxies = issubclass(loss_type, ProxyLoss)
    arguments: Facts = {"num_classes": 2} if on_proxies else {}
    if loss_type is dml.losses.DynamicArcFaceLoss:
        arguments["class_counts"] = [100, 100]
    loss = loss_type(**arguments)
    anchor = np.array([[1.0, 0.0, 0.0]], "float32")

    def value(positive: Any, negative: Any) -> Any:
        others = tf.stack(
            [
                tf.stack([positive, tf.sqrt(1 - positive**2), 0.0]),
                tf.stack([negative, 0.0, tf.sqrt(1 - negative**2)]),
            ]
        )
        if on_proxies:
            each = loss.num_proxies // 2
            proxies = tf.repeat(others, each, axis=0)
            return loss.values(np.array([0]), anchor, proxies)[0]
        relation = np.array([[1, 0]])
        return loss.per_example(relation, anchor, ref_embeddings=others)[0]

    return value


def rows() -> Iterator[str]:
    yield "| loss | definition | paper | also known as |"
    yield "|---|---|---|---|"
    for entry in losses():
        paper = entry.paper
        cited = paper.venue if paper else ""
        if paper and paper.url:
            cited = f"[{cited}]({paper.url})"
        cells = [f"`{entry.value.__name__}`", entry.definition, cited]
        yield f"| {' | '.join(cells)} | {other_names(entry.value)} |"


def other_names(loss: type) -> str:
    """What a loss is called elsewhere, if not the same, as far as fits."""
    _, _, rest = (inspect.getdoc(loss) or "").partition("\nAlso known as:\n")
    section = " ".join(rest.partition("\n\n")[0].split())
    elsewhere = section.partition("Elsewhere: ")[2].rstrip(".").split(", ")
    theirs = re.findall(r"`([A-Z]\w+)(?:\([^`]*)?`", section)
    found = [x for x in elsewhere if x] + [
        f"`{x}`"
        for x in theirs
        if not hasattr(dml.losses, x) and not x.endswith("Miner")
    ]
    found = list({x.strip("`").lower(): x for x in found}.values())
    while len(text := ", ".join(found)) > CELL:
        found.pop()
    return text


def overview() -> str:
    """docs/losses/README.md with its table made again."""
    table = "\n".join(rows()) + "\n"
    return TABLE.sub(lambda _: table, OVERVIEW.read_text(encoding="utf-8"))


def numbers(made: dict[str, dict[str, Facts]]) -> dict[str, dict[str, Facts]]:
    """What running gives, for every thing of `texts()`."""
    for facts in [*made["losses"].values(), *made["methods"].values()]:
        facts["printed"] = printed(facts["code"])
    for name, facts in made["losses"].items():
        if facts["class"] not in WITHOUT_PLOT and name not in COMPOSITES:
            found = slopes(getattr(dml.losses, facts["class"]))
            facts["curves"], facts["most"] = found
    return made


def as_json(data: dict[str, dict[str, Facts]]) -> str:
    """JSON with one thing a line, of which a change is seen."""
    groups = (
        f'"{group}": {{\n'
        + ",\n".join(
            f'"{x}": {json.dumps(facts, ensure_ascii=False)}'
            for x, facts in things.items()
        )
        + "\n}"
        for group, things in data.items()
    )
    return "{\n" + ",\n".join(groups) + "\n}\n"


def written() -> dict[Path, str]:
    """What the files would be, with the numbers that are in them."""
    made = texts()
    for group, things in json.loads(DATA.read_text(encoding="utf-8")).items():
        for name, facts in things.items():
            new = made[group].get(name, {})
            new.update({x: facts[x] for x in NUMBERS if x in facts})
    return {OVERVIEW: overview(), DATA: as_json(made)}


def main() -> None:
    OVERVIEW.write_text(overview(), encoding="utf-8")
    DATA.write_text(as_json(numbers(texts())), encoding="utf-8")


if __name__ == "__main__":
    main()
