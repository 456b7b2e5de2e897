"""Twenty tasks of users, solved by the code of docs/project/assistants.md."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score

import keras_dml as dml
from tests.runs.small_run import write_images

PAGE = Path(__file__).parents[1] / "docs/project/assistants.md"
PARTS = re.split(r"^##+ (.+)\n", PAGE.read_text(), flags=re.M)
SECTIONS = dict(zip(PARTS[1::2], PARTS[2::2], strict=True))
FOLDER = "A folder of images, or a table"
NETWORK = "Your network, precision, devices, resuming"


def code(section: str, language: str = "python") -> str:
    pattern = rf"^```{language}\n(.*?)^```"
    return "".join(re.findall(pattern, SECTIONS[section], re.M | re.S))


def names_after(
    section: str, old: str = "", new: str = "", **given: Any
) -> SimpleNamespace:
    """Runs an example in the current folder; returns its names."""
    names = {"__name__": "docs", **given}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code("Examples"), names)  # noqa: S102
        exec(code(section).replace(old, new), names)  # noqa: S102
    return SimpleNamespace(**names, printed=printed.getvalue().strip())


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> Callable[[str], SimpleNamespace]:
    """Runs each example once, in a folder of its own."""

    @cache
    def run(section: str) -> SimpleNamespace:
        folder = tmp_path_factory.mktemp("example")
        if section == FOLDER:
            write_images(folder / "photographs", classes=24)
        with contextlib.chdir(folder):
            names = names_after(section)
        names.folder = folder
        return names

    return run


def recall(n: Any, model: keras.Model) -> float:
    new = (n.x[n.new], n.y[n.new])
    return dml.evaluation.evaluate(model, new, metrics="recall@1")["recall@1"]


def cosines(a: Any, b: Any) -> np.ndarray:
    return (np.asarray(a, float) * np.asarray(b, float)).sum(axis=1)


def prices_below_50(n: Any) -> set[int]:
    hits = n.index.search(n.query, k=60, where={"price": {"<": 50}})
    return {hit.row["price"] for hit in hits[0]}


def false_match_rate(n: Any) -> float:
    scores = cosines(*n.embeddings[n.rows.T])
    is_same = n.y[n.rows[:, 0]] == n.y[n.rows[:, 1]]
    return (scores[~is_same] >= n.threshold.value).mean()


def hardest_triplets(n: Any) -> float:
    x, y = n.x[:64], n.y[:64]
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    is_same = y[:, None] == y[None]
    positive = np.where(is_same, distances, -np.inf).max(axis=1)
    negative = np.where(is_same, np.inf, distances).min(axis=1)
    terms = np.maximum(positive - negative + 0.2, 0)
    return terms[terms > 0].mean()


def own_loss_is_right(n: Any) -> bool:
    x, y = n.model.predict(n.x[:16], verbose=0), n.y[:16]
    signs = np.where(y[:, None] == y[None], -1, 1)
    return np.allclose(n.spread(y, x), (x @ x.T * signs).mean(1), atol=1e-5)


def saved_model_error(n: Any) -> float:
    import tensorflow as tf

    model = tf.saved_model.load(n.folder / n.served)
    images = tf.cast(n.pixels, "float32")
    served = model.signatures["serving_default"](images=images)["embedding"]
    return np.abs(served - n.model.predict(n.pixels, verbose=0)).max()


def exported_error(n: Any, path: Path) -> float:
    embeddings = n.model.predict(n.pixels, verbose=0)
    exported = dml.evaluation.embed(n.model, n.pixels, engine=n.folder / path)
    return np.abs(exported - embeddings).max()


TASKS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "Arrays": {
        "fine-tune on arrays": lambda n: (
            n.results["map@r"] > 0.95 > n.untouched["map@r"] + 0.3
        ),
        "evaluate on unseen classes": lambda n: n.results.num_classes == 20,
        "k nearest neighbors": lambda n: n.results["knn_accuracy@5"] > 0.95,
    },
    FOLDER: {
        "fine-tune on a folder": lambda n: (
            n.results["recall@1"] > 0.6
            and list(n.folder.glob("checkpoints/*.keras"))
            and set(n.data.train.labels).isdisjoint(n.data.test.labels)
        ),
    },
    "Search": {
        "build an index and search below a price": lambda n: (
            n.printed.startswith("sku-0 ")
            and prices_below_50(n) == {*range(1, 50)}
        ),
        "remove and add a product": lambda n: (
            len(n.index) == 160
            and "sku-0" not in n.index
            and n.index.search(n.query, k=1)[0][0].key == "sku-new"
        ),
        "nothing matches": lambda n: (
            n.printed.endswith("[None]")
            and n.index.search(n.query)[0][0].is_match
        ),
    },
    "Verification": {
        "verify by a threshold": lambda n: (
            n.errors["eer"].estimate < 0.01 >= false_match_rate(n)
        ),
        "accuracy in LFW's ten folds": lambda n: (
            n.accuracy.mean > 0.99 and len(n.accuracy.accuracies) == 10
        ),
    },
    "Texts with in-batch negatives": {
        "texts with in-batch negatives": lambda n: (
            [hit[0].row["text"] for hit in n.hits] == n.answers
        ),
    },
    "Losses, miners, a loss of your own": {
        "a loss and miner of pytorch-metric-learning": lambda n: (
            float(n.hard(n.y[:64], n.x[:64]))
            == pytest.approx(hardest_triplets(n), rel=1e-4)
        ),
        "a loss of one's own": own_loss_is_right,
    },
    NETWORK: {
        "a network of one's own": lambda n: (
            len(n.backbone.trainable_variables) == 2
            and np.array_equal(n.again.predict(n.x), n.model.predict(n.x))
        ),
        "mixed precision": lambda n: (
            n.backbone.get_layer("upper").compute_dtype == "float16"
            and np.allclose(cosines(*[n.model.predict(n.x)] * 2), 1, atol=1e-5)
        ),
    },
    "Divide and conquer, distillation": {
        "divide and conquer": lambda n: (
            recall(n, n.divided) > 0.8
            and sum(n.recluster.divisions[0].sizes) == len(n.examples)
        ),
        "distill a teacher": lambda n: (
            recall(n, n.student) > 0.8
            and n.student.predict(n.x).shape == (320, 8)
        ),
    },
    "Export": {
        "export a SavedModel": lambda n: saved_model_error(n) < 1e-5,
        "export to ONNX": lambda n: exported_error(n, n.onnx) < 1e-5,
        "quantize to int8": lambda n: 1e-4 < exported_error(n, n.int8) < 0.05,
    },
    "Clusters and figures": {
        "whiten without training": lambda n: recall(n, n.model) > 0.95,
        "cluster without labels": lambda n: (
            adjusted_mutual_info_score(n.y[n.new], n.clusters) > 0.85
        ),
        "draw a map": lambda n: (
            len((n.folder / "map.csv").read_text().split("\n")) > 160
        ),
    },
}
"""By example: the tasks that it solves, and whether its names are right."""


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize(
    ("section", "task"), [(x, task) for x in TASKS for task in TASKS[x]]
)
def test_example_solves_task(section: str, task: str, example) -> None:
    assert TASKS[section][task](example(section))


@pytest.mark.slow
@pytest.mark.pages
def test_example_of_a_folder_reads_a_table(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = sorted(write_images(tmp_path / "shop", classes=24).rglob("*.png"))
    rows = [f"{path},{path.parent.name}" for path in paths]
    Path("shop.csv").write_text("\n".join(["path,label", *rows]))
    (table,) = re.findall(r"# Or.*: data = dml.data.(.*)", code(FOLDER))
    folder = 'image_folder_splits("photographs")'
    names = names_after(FOLDER, folder, table)
    assert names.results["recall@1"] > 0.6
    assert names.results.num_classes == 12


@pytest.mark.slow
@pytest.mark.pages
def test_example_resumes_after_it_is_stopped(tmp_path, monkeypatch) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise KeyboardInterrupt

    (tmp_path / "stopped").mkdir()
    monkeypatch.chdir(tmp_path)
    whole = names_after(NETWORK)
    monkeypatch.chdir("stopped")
    with pytest.raises(KeyboardInterrupt):
        names_after(NETWORK, "[resume]", "[resume, Stop()]", Stop=Stop)
    keras.config.set_dtype_policy("float32")
    resumed = names_after(NETWORK)
    expected = whole.model.predict(whole.x)
    np.testing.assert_array_equal(resumed.model.predict(whole.x), expected)


def test_commands_change_keys_of_a_recipe() -> None:
    train = code("Commands", "sh").splitlines()[1]
    *_, name, _, _, _, epochs, _, dim = shlex.split(train)
    recipe = dml.recipes.dump(dml.recipes.load(name, [epochs, dim]))
    assert "\nepochs: 1\n" in recipe
    assert "embedding_dim: 64\n" in recipe
