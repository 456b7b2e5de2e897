"""Every code block of the README and of docs/ runs, on a bit of the data.

Training takes an epoch. `.ci/marked pages` runs all pages, when one has
changed or how a public name is called; two are not slow and always run.

The blocks of a page run in order. Those in Python share their names. One that
begins with the name of a file, "# name.py" or "# name.yaml", is written to that
file; a program is then for a `sh` block to run. Of the `sh` blocks, commands of
this package run, and such programs; two of the README run in CI, as printed. A
client of a server is answered by the built-in one. YAML blocks must be recipes.

What takes hours, or needs a network, an account or another library, is in `py`
blocks, or in `sh` blocks below `<!--not-run-->`. `.ci/lint` checks that what
they name exists.
"""

import argparse
import contextlib
import dataclasses
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import keras_dml
from keras_dml import recipes
from keras_dml.cli import main
from keras_dml.recipes.files import validate
from keras_dml.recipes.inheritance import merge
from tests.export.rest import serving
from tests.recipes.stand_ins import stand_in
from tests.runs.small_run import write_images

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REGISTRIES = (
    keras_dml.losses.LOSSES,
    keras_dml.losses.COMPOSITES,
    keras_dml.losses.REDUCTIONS,
    keras_dml.losses.mining.MINING,
    keras_dml.losses.distances.DISTANCES,
    keras_dml.evaluation.METRICS,
    keras_dml.methods.METHODS,
)
NEEDING = {
    "docs/guides/databases.md": (
        "engines", "lancedb", "milvus_lite", "pymilvus", "qdrant_client",
    ),
}  # fmt: skip
"""Pages whose blocks need packages that the tests do not bring: the mark by
which a script of .ci runs them, and the packages."""

QUICK = ["docs/concepts/README.md", "docs/losses/README.md"]
"""Pages whose blocks run in the quick tests."""


FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def marks(page: Path) -> list[pytest.MarkDecorator]:
    if name(page) in NEEDING:
        return [getattr(pytest.mark, NEEDING[name(page)][0])]
    if name(page) in QUICK:
        return []
    return [pytest.mark.slow, pytest.mark.pages]


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Languages and contents."""
    pattern = rf"^(?<!<!--not-run-->\n)```({'|'.join(languages)})\n(.*?)^```"
    return re.findall(pattern, page.read_text(), re.M | re.S)


def few(images: keras_dml.data.Examples, each: int) -> keras_dml.data.Examples:
    """Some examples of each of the first forty classes."""
    rows = [
        np.flatnonzero(images.labels == label)[:each]
        for label in np.unique(images.labels)[:40]
    ]
    return images.select(np.concatenate(rows))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """The tutorial's files: a few classes, a network and a query."""
    folder = tmp_path_factory.mktemp("given")
    photographs = write_images(folder / "photographs", classes=44)
    (photographs / "class_43").rename(photographs / "crow")
    query, product, *_ = sorted((photographs / "crow").iterdir())
    query.rename(folder / "query.jpg")
    write_products(folder, product, folder / "query.jpg")
    image = keras.Input((None, None, 3))
    pooled = keras.layers.AveragePooling2D(16)(image)
    network = keras.Model(image, keras.layers.Conv2D(8, 3)(pooled))
    network.save(folder / "network.keras")
    return folder


def write_products(folder: Path, *images: Path) -> None:
    """The tables of the tutorial, with a photograph each."""
    names = ("products", "A-4711"), ("new_products", "A-4712")
    for (name, key), image in zip(names, images, strict=True):
        row = f"{image.relative_to(folder)},crow,{key}"
        (folder / f"{name}.csv").write_text(f"path,label,id\n{row}\n")


@pytest.fixture(scope="module")
def little() -> keras_dml.data.DataSplits:
    """A small subset of glyphs."""
    return little_of(keras_dml.data.glyphs())


def little_of(splits: keras_dml.data.DataSplits) -> keras_dml.data.DataSplits:
    return dataclasses.replace(
        splits,
        train=few(splits.train, 10),
        validation=few(splits.validation, 4),
        test=few(splits.test, 4),
    )


@pytest.fixture
def little_data(little, photographs, tmp_path, monkeypatch) -> None:
    """Changes to a folder with recipes, a few photographs and few glyphs."""
    monkeypatch.setattr(keras_dml.data, "glyphs", lambda: little)
    stand_in(monkeypatch, "glyphs", lambda: little)
    names = little_of(keras_dml.data.symbol_names())
    monkeypatch.setattr(keras_dml.data, "symbol_names", lambda: names)
    stand_in(monkeypatch, "symbol_names", lambda: names)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    shutil.copytree(photographs, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def own_registries(monkeypatch, tmp_path) -> Iterator[None]:
    """Forgets the registered names and modules of a page."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    yield
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or "/"
        if Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Where runs are kept; see `run_command`."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def server(tmp_path) -> Iterator[str]:
    with serving(tmp_path / "saved_models") as address:
        yield address


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=marks(page))
        for page in PAGES
        if blocks(page, "python", "sh")
    ],
    ids=name,
)
@pytest.mark.usefixtures("little_data", "own_registries")
def test_code_blocks_run(page: Path, server: str, finished: Path) -> None:
    for package in NEEDING.get(name(page), ())[1:]:
        pytest.importorskip(package)
    names: dict[str, object] = {"__name__": "docs"}
    for language, block in blocks(page, "python", "sh", "yaml"):
        if language == "sh":
            run_commands(block, finished)
            continue
        if file := FILE.match(block):
            Path(file[1]).write_text(block)
            continue
        if language == "yaml":
            continue
        block = block.replace("localhost:8501", server)
        block = re.sub(r"\bepochs=\d+", "epochs=1", block)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, str(page), "exec"), names)  # noqa: S102


def run_commands(block: str, finished: Path) -> None:
    for line in re.split(r"\n|&& ", block.replace("\\\n", "")):
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "keras-dml":
            run_command(arguments, finished)
        if program == "python" and Path(arguments[0]).is_file():
            subprocess.run([sys.executable, *arguments], check=True)


def run_command(arguments: list[str], finished: Path) -> None:
    """Runs a command. Training takes an epoch.

    Many pages begin with the same training: its run is kept in `finished`,
    from where the next page has it.
    """
    if arguments[0] != "train":
        return invoke(arguments)
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    options, arguments = parser.parse_known_args(arguments)
    if not any("epochs=" in argument for argument in arguments):
        arguments += ["--set", "epochs=1"]
    output = ["--output", options.output] if options.output else []
    recipe = arguments[1]
    if recipe not in recipes.names():  # It is the page's own.
        return invoke([*arguments, *output])
    folder = options.output or f"runs/{recipes.load(recipe).name}"
    kept = finished / shlex.join(arguments).replace("/", "|")
    if kept.exists():
        shutil.copytree(kept, folder)
    else:
        invoke([*arguments, *output])
        shutil.copytree(folder, kept)


def invoke(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, f"{arguments}\n{result.output}"


@pytest.mark.usefixtures("own_registries")
def test_recipes_in_docs_validate(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for page in PAGES:
        for language, block in blocks(page, "python", "yaml"):
            if language == "yaml":
                validate(whole(yaml.safe_load(block)), str(page))
            elif file := FILE.match(block):
                (tmp_path / file[1]).write_text(block)


def whole(content: dict) -> dict:
    """A recipe merged with its bases."""
    while base := content.pop("base", None):
        path = ROOT / "recipes" / "glyphs" / base
        content = merge(yaml.safe_load(path.read_text()), content)
    return content
