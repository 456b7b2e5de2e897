"""The tutorial on photographs: its commands as printed, for 5 and 100 classes.

What it says of retrieval and of matches is compared with what is measured
here, one query at a time. It takes Caltech-101 and a pretrained network.
"""

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml import evaluation, recipes, runs
from keras_dml.data import ImageSet
from keras_dml.model.projections import fit_projection
from keras_dml.search import Index
from tests.recipes.builds import data_of, model_of
from tests.serve.test_process import COMMAND, Server
from tests.test_docs import write_products

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "start" / "photographs.md").read_text()
CALTECH = ROOT.parent / "shared" / "data" / "caltech101"
NETWORK = (
    ROOT.parent / "shared" / "weights" / "efficientnet_lite0_imagenet.keras"
)

IMAGES = 20
"""Photographs of a class, at most; the first is a query."""

PROCESSOR_SECONDS = 2 * 15 * 60
"""Fifteen minutes of two cores: how long it takes says more of a machine."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tutorial,
    pytest.mark.skipif(
        not (CALTECH.is_dir() and NETWORK.is_file()),
        reason="no Caltech-101 and no network here",
    ),
]


def commands(before: str = r"(?<!<!--not-run-->\n)") -> list[list[str]]:
    """The commands of `keras-dml` in blocks to run, or those below a mark."""
    blocks = re.findall(rf"^{before}```sh\n(.*?)^```", PAGE, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [
        shlex.split(line)[1:] for line in lines if line.startswith("keras-dml ")
    ]


def run(arguments: list[str]) -> str:
    """Output of a command that runs on all threads."""
    environment = {x: y for x, y in os.environ.items() if "THREADS" not in x}
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment | {"COLUMNS": "1000"},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def processor_seconds() -> float:
    """Processor seconds of all finished commands."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def write_photographs(count: int) -> list[Path]:
    """Photographs of some classes; the queries, one of every class there is.

    Returns:
        The queries.
    """
    folders = sorted(x for x in CALTECH.iterdir() if x.is_dir())
    chosen = {folders[len(folders) * i // count].name for i in range(count)}
    Path("queries").mkdir()
    for folder in folders:
        query, *gallery_files = sorted(folder.iterdir())[:IMAGES]
        shutil.copy(query, f"queries/{folder.name}.jpg")
        if folder.name in chosen:
            shutil.copytree(
                folder,
                f"photographs/{folder.name}",
                ignore=lambda _, names, gallery_files=gallery_files: (
                    set(names) - {x.name for x in gallery_files}
                ),
            )
    shutil.copy(NETWORK, "network.keras")
    return sorted(Path("queries").iterdir())


def is_right(x: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Whether the nearest other row is of the same class, by a loop."""
    verdicts = []
    for row, vector in enumerate(x):
        cosines = x @ vector
        cosines[row] = -np.inf
        verdicts.append(classes[cosines.argmax()] == classes[row])
    return np.array(verdicts, float)


def interval(gains: np.ndarray, classes: np.ndarray) -> tuple[float, float]:
    """Ends of the mean gain where classes are drawn, 95 %, by a loop."""
    rng = np.random.default_rng(1)
    by_class = [gains[classes == x] for x in np.unique(classes)]
    means = [
        np.concatenate(
            [
                by_class[i]
                for i in rng.integers(len(by_class), size=len(by_class))
            ]
        ).mean()
        for _ in range(2000)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def project_untouched(recipe: recipes.Recipe) -> np.ndarray:
    """Projects the test photographs' features of the untrained network."""
    splits, network = data_of(recipe), model_of(recipe).backbone
    pooled = keras.Sequential([network, keras.layers.GlobalAveragePooling2D()])
    train, test = (
        evaluation.embed(pooled, x) for x in (splits.train, splits.test)
    )
    projection = fit_projection(train, splits.train.labels, 128)
    projected = projection(test)
    return projected / np.linalg.norm(projected, axis=1, keepdims=True)


def check_training(printed: str, x: np.ndarray, labels: np.ndarray) -> None:
    """Asserts that the stated recall@1 is the measured one."""
    result = json.loads(Path("runs/photographs/result.json").read_text())
    recipe = runs.load_recipe("runs/photographs")
    untrained = project_untouched(recipe)
    before, after = is_right(untrained, labels), is_right(x, labels)
    assert result["before"]["recall@1"] == pytest.approx(
        before.mean(), abs=0.01
    )
    assert result["after"]["recall@1"] == pytest.approx(after.mean(), abs=0.01)
    verdict = result["verdicts"]["recall@1"]
    assert re.search(rf"│ recall@1 .*│ {verdict} +│", printed)
    if len(np.unique(labels)) < 5:
        assert verdict == "too few classes to tell"
        return
    low, high = interval(after - before, labels)
    if low > 0.005 or high < -0.005:
        assert verdict == ("better" if low > 0 else "worse"), (low, high)
    elif low < -0.005 and high > 0.005:
        assert verdict == "within the noise", (low, high)
    else:  # An end is about at zero.
        wrong = "better" if after.mean() < before.mean() else "worse"
        assert verdict != wrong, (low, high)


def ask(server: Server, path: Path) -> list[dict]:
    """The search page of a photograph."""
    connection = server.connect()
    connection.request("POST", "/search?k=3", path.read_bytes())
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    hits: list[dict] = json.loads(answer.read())["hits"]
    connection.close()
    return hits


def check_matches(queries: list[Path], index: Index) -> tuple[int, int, float]:
    """The page names the nearest photograph, and says whether it is a match.

    Returns:
        How many queries whose class is in the gallery have a match, and how
        many of these are right; what share of the others has one.
    """
    # Each class of the gallery, and one in four of the others.
    strangers = [x for x in queries if x.stem not in set(index.labels)]
    queries = [x for x in queries if x not in strangers] + strangers[::4]
    model = runs.load_model("runs/photographs")
    x = evaluation.embed(model, ImageSet([str(path) for path in queries]))
    value = None if index.threshold is None else index.threshold.value
    num_known, right, strange = 0, 0, 0
    command = commands("<!--not-run-->\n")[-1]
    assert command[0] == "serve"
    server = Server(*command[1:], "--port", "0")
    try:
        for path, vector in zip(queries, x, strict=True):
            hit = ask(server, path)[0]
            cosines = index.embeddings @ (vector / np.linalg.norm(vector))
            assert hit["score"] == pytest.approx(cosines.max(), abs=1e-3)
            nearest = index.labels[int(hit["key"])]
            assert cosines[hit["key"]] == pytest.approx(cosines.max(), abs=1e-3)
            if value is None:
                assert hit["is_match"] is None
                continue
            if abs(cosines.max() - value) > 1e-3:
                assert hit["is_match"] == (cosines.max() >= value)
            if path.stem not in index.labels:
                strange += hit["is_match"]
            elif hit["is_match"]:
                num_known += 1
                right += nearest == path.stem
    finally:
        server.close()
    return num_known, right, strange / len(strangers[::4])


def reached_without_class(index: Index) -> float:
    """Rate of matches of classes left out of the gallery."""
    assert index.threshold is not None
    labels, x = np.array(index.labels), index.embeddings
    cosines = np.where(labels[:, None] == labels, -np.inf, x @ x.T)
    reached = cosines.max(axis=1) >= index.threshold.value
    return float(np.mean([reached[labels == c].mean() for c in set(labels)]))


@pytest.mark.parametrize("classes", [5, 100])
def test_tutorial_leads_from_a_folder_to_a_search_page(
    classes, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    queries = write_photographs(classes)
    class_names = {x.name for x in Path("photographs").iterdir()}
    # The last classes, in the order of their names, are for testing.
    query = Path.cwd() / "queries" / f"{max(class_names)}.jpg"
    shutil.copy(query, "query.jpg")
    before = processor_seconds()
    product = next(Path.cwd().glob("photographs/*/*"))
    write_products(Path.cwd(), product, query)
    outputs = [(words, run(words)) for words in commands()]
    names = ["data", "train", "report", "index", "search"]
    assert [x[0] for x, _ in outputs] == [*names, "index", "index", "index"]
    printed = dict(zip(names, [text for _, text in outputs], strict=False))
    spent = processor_seconds() - before
    print(f"{classes} classes: {spent:.0f} processor seconds")
    assert spent < PROCESSOR_SECONDS

    index = Index.load("indexes/photographs")
    labels = np.array(index.labels)
    assert len(set(labels)) == classes // 2
    check_training(printed["train"], index.embeddings, labels)
    num_known, right, strange = check_matches(queries, index)
    page = Path("found.html").read_text()
    if index.threshold is None:
        assert classes < 100
        assert "no threshold: --calibrate must hold at" in printed["index"]
        assert "match" not in page.partition("<main>")[2]
        return
    assert "hardly tell a share" not in printed["index"]
    assert ("has no match" in page) != ("has a match" in page)
    assert ("query.jpg: match" in printed["search"]) == ("has a match" in page)
    upper = max(0.05, index.threshold.false_positive_high)
    assert reached_without_class(index) <= upper
    assert strange <= upper + 0.1
    assert right >= 0.9 * num_known
