"""A small data folder, a quick recipe, and runs of methods."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner
from PIL import Image

from keras_dml import recipes, runs
from keras_dml.cli import main
from keras_dml.utils.files import file_lock
from tests.conftest import blobs

RECIPE = """
name: small
data: {{name: image_folder, path: {folder}}}
backbone: {{name: small_convnet, input_shape: [16, 16, 1]}}
method:
  name: divide_and_conquer
  embedding_dim: 8
  num_learners: 2
  loss: contrastive
batches: {{classes_per_batch: 2, images_per_class: 3}}
epochs: 2
"""

METHODS = {
    "baseline": "method={name: baseline, loss: contrastive, embedding_dim: 8}",
    "divide_and_conquer": "name=divided",
    "attentive_grouping": "method={name: attentive_grouping, embedding_dim: 8, "
    "num_groups: 2, loss: contrastive}",
    "abe": "method={name: abe, embedding_dim: 8, num_learners: 2, "
    "branch: relu_1, attention_end: relu_2}",
    "dcml": "method={name: dcml, embedding_dim: 8, num_learners: 2, "
    "num_compositors: 3, loss: contrastive}",
}

QUICK = ("epochs=1", "evaluation.metrics=[recall@1, map@r]")


def write_images(folder: Path, classes: int = 12, images: int = 6) -> Path:
    """Writes `folder/class/image.png`; returns the folder."""
    data = blobs(classes, images)
    for row, (pixels, label) in enumerate(
        zip(data.images, data.labels, strict=True)
    ):
        path = folder / f"class_{label:02}" / f"{row:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def write_recipe(folder: Path) -> Path:
    """Writes the images and the recipe; returns the recipe's path."""
    images = write_images(folder / "images")
    path = folder / "small.yaml"
    path.write_text(RECIPE.format(folder=images))
    return path


def write_unread(folder: Path) -> Path:
    """Writes the recipe without images, for tests that never train."""
    path = folder / "small.yaml"
    path.write_text(RECIPE.format(folder="unread"))
    return path


def train_once(folder: Path, method: str) -> Path:
    """The run of a method, trained by the first process that asks for it."""
    run = folder / method / "run"
    folder.mkdir(exist_ok=True)
    with file_lock(folder / f"{method}.lock"):
        if not run.exists():
            path = write_recipe(folder / method)
            recipe = recipes.load(path, (METHODS[method], *QUICK))
            runs.train(recipe, run, verbose=0)
    return run


@dataclass(frozen=True)
class Commanded:
    """A run of the command: its folder, exit status and output."""

    folder: Path
    outcome: runs.Outcome
    stdout: str
    stderr: str


def train_by_command(folder: Path) -> Commanded:
    """A run of two epochs with every metric, in a graph."""
    outcomes: list[runs.Outcome] = []

    def train(*arguments: Any) -> runs.Outcome | None:
        outcome = original(*arguments)
        outcomes.append(outcome)
        return outcome

    original, place = runs.train, folder / "run"
    command = ["train", str(write_recipe(folder)), "--output", str(place),
               "--json"]  # fmt: skip
    with mock.patch("keras_dml.runs.train", train):
        ended = CliRunner().invoke(main, command, catch_exceptions=False)
    (outcome,) = outcomes
    return Commanded(place, outcome, ended.stdout, ended.stderr)
