"""Every code block of the README and of docs/ runs, on a bit of the data.

Python blocks of a page run in order and share their names. Of the `sh`
blocks, commands of this package run; the two of the README run in CI, as
printed. YAML blocks must be recipes.
"""

import contextlib
import dataclasses
import io
import re
import shlex
from pathlib import Path

import keras
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import keras_dml
from keras_dml.cli import main
from keras_dml.recipes.files import merge, validate
from tests.runs.small_run import write_images

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, page.read_text(), re.M | re.S)


def with_blocks(language: str):
    return pytest.mark.parametrize(
        "page",
        [page for page in PAGES if blocks(page, language)],
        ids=lambda page: str(page.relative_to(ROOT)),
    )


def few(images: keras_dml.data.ImageSet) -> keras_dml.data.ImageSet:
    """The first forty classes, ten images each."""
    rows = [
        np.flatnonzero(images.labels == label)[:10]
        for label in np.unique(images.labels)[:40]
    ]
    return images.select(np.concatenate(rows))


def write_photographs(folder: Path) -> None:
    """What the tutorial starts from: some classes, a network, a query."""
    photographs = write_images(folder / "photographs", classes=44)
    (photographs / "class_43").rename(photographs / "crow")
    next((photographs / "crow").iterdir()).rename(folder / "query.jpg")
    image = keras.Input((None, None, 3))
    pooled = keras.layers.AveragePooling2D(16)(image)
    # Named as the layer up to which the recipe keeps the network as it is.
    frozen = keras.layers.Conv2D(8, 3, name="block5c_add")(pooled)
    network = keras.Model(image, keras.layers.Conv2D(8, 1)(frozen))
    network.save(folder / "network.keras")


@pytest.fixture(autouse=True)
def little_data(tmp_path, monkeypatch) -> None:
    """In a folder with the recipes, a few photographs, little of glyphs."""
    splits = keras_dml.data.glyphs()
    little = dataclasses.replace(
        splits,
        train=few(splits.train),
        validation=few(splits.validation),
        test=few(splits.test),
    )
    monkeypatch.setattr(keras_dml.data, "glyphs", lambda: little)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    write_photographs(tmp_path)


@pytest.mark.slow
@with_blocks("python")
def test_python_blocks_run(page: Path) -> None:
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks(page, "python"):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, str(page), "exec"), names)  # noqa: S102


@pytest.mark.slow
@with_blocks("sh")
def test_commands_run(page: Path) -> None:
    if page.name == "README.md" and page.parent == ROOT:
        return  # Run by .ci/run.
    text = "".join(blocks(page, "sh")).replace("\\\n", "")
    for line in text.splitlines():
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "keras-dml":
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, f"{line}\n{result.output}"


@with_blocks("yaml")
def test_recipes_in_docs_are_recipes(page: Path) -> None:
    for block in blocks(page, "yaml"):
        content = yaml.safe_load(block)
        base = content.pop("base", None)
        if base:
            path = ROOT / "recipes" / "glyphs" / base
            content = merge(yaml.safe_load(path.read_text()), content)
        validate(content, str(page))


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (page.parent / link).exists(), link
