"""Logging to TensorBoard: metrics, retrieval, pairs and the projector."""

import csv
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_dml.callbacks.logs import is_due
from keras_dml.callbacks.tracker import retrieval_picture
from keras_dml.data import Examples
from keras_dml.data.as_examples import as_examples
from keras_dml.data.examples import any_labels_of
from keras_dml.data.fields import Pixels
from keras_dml.data.pictures import class_column, seen
from keras_dml.evaluation import embed
from keras_dml.evaluation.pairs import negative_pairs, positive_pairs
from keras_dml.utils.arguments import (
    Checked,
    checked,
    import_extra,
)
from keras_dml.utils.files import atomic_file, write_atomically
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import (
    Count,
    FloatArray,
    NonNegativeInt,
    Side,
    Tensor,
)

logger = logging.getLogger(__name__)


def active_pairs(
    model: keras.Model, x: Any, targets: Any, most: int = 64
) -> dict[str, dict[str, float]]:
    """The share of pairs that have a gradient, for each term of the loss.

    A pair (i, j), i ≠ j, is active in a term if a change of the head's output
    for image j changes the term of image i. This definition applies to every
    loss and miner. For hinge losses, active pairs are those that violate the
    margin; for triplets, those of a violating triplet; for a softmax over
    pairs, all pairs. A term that does not compare images of the batch has 0.

    The model does not change, including the states of its random generators.

    Args:
        model: A `MetricModel`.
        x: Images, (B, H, W, C), or two views of them.
        targets: (B,) labels, (B, C) booleans for several labels each, or
            (B, B) relations; or the dict of the pipeline.
        most: The largest number of images to use, from the start of the batch.

    Returns:
        The shares of active "positive" and "negative" pairs, from 0 to 1, for
        each term. A kind without pairs in the batch is left out.
    """
    if not isinstance(targets, dict):
        targets = {"label": targets}
    x, targets = tf.nest.map_structure(
        lambda value: ops.convert_to_tensor(value)[:most], (x, targets)
    )
    outputs = model.outputs_of(x, training=False)
    # Outputs of a momentum network are targets; attention is not compared.
    watched = {
        name: value
        for name, value in outputs.items()
        if name != "attention" and not name.startswith("momentum")
    }
    labels = np.asarray(targets["label"])
    positive, negative = _relations_of(labels)
    off_diagonal = ~np.eye(len(labels), dtype=bool)
    kinds = {
        "positive": positive & off_diagonal,
        "negative": negative & off_diagonal,
    }
    return {
        term: {
            kind: float(active[pairs].mean())
            for kind, pairs in kinds.items()
            if pairs.any()
        }
        for term, active in _active(model, outputs, targets, watched).items()
    }


def _relations_of(labels: Any) -> tuple[Any, Any]:
    """The positive and the negative pairs of a batch, each (B, B)."""
    if labels.ndim == 1:
        same = labels[:, None] == labels
    elif labels.dtype == bool:  # Several labels each.
        same = (labels[:, None] & labels).any(axis=-1)
    else:  # Relations, where −1 is unknown.
        return labels == 1, labels == 0
    return same, ~same


def _active(
    model: keras.Model,
    outputs: dict[str, Tensor],
    targets: dict[str, Tensor],
    watched: dict[str, Tensor],
) -> dict[str, Any]:
    """Whether the i-th value of a term depends on image j, (B, B) per term."""

    def terms_of(watched: dict[str, Tensor]) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = model.objective(outputs | watched, targets)
        return terms

    if keras.backend.backend() == "jax":
        import jax

        with keras.StatelessScope():  # What is assigned there is let go.
            found = jax.jacrev(terms_of)(watched)
        return {
            term: np.any([_is_nonzero(x, 2) for x in by.values()], axis=0)
            for term, by in found.items()
        }
    state = [
        (variable, ops.convert_to_numpy(variable))
        for variable in model.objective.non_trainable_variables
    ]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(watched)
        terms = terms_of(watched)
        values = {name: tf.unstack(term) for name, term in terms.items()}
    for variable, value in state:
        variable.assign(value)

    def depends(value: Tensor) -> Any:
        """Whether a value depends on each image, (B,)."""
        gradients = tape.gradient(value, list(watched.values()))
        given = [tf.convert_to_tensor(x) for x in gradients if x is not None]
        # Of a value that depends on none, nothing is given.
        none = np.zeros(len(targets["label"]), bool)
        return np.any([none, *(_is_nonzero(x, 1) for x in given)], axis=0)

    return {
        name: np.stack([depends(value) for value in anchors])
        for name, anchors in values.items()
    }


def _is_nonzero(x: Tensor, axes: int) -> Any:
    """Whether there is anything but zero behind the first axes."""
    return (np.asarray(x).reshape(*x.shape[:axes], -1) != 0).any(axis=-1)


LARGEST_SPRITE = 8192
"""Largest side of a sprite that the projector can show, in pixels."""

CONFIG = """embeddings {{
  tensor_name: "embedding"
  tensor_path: "embeddings.tsv"
  metadata_path: "labels.tsv"
  sprite {{
    image_path: "sprite.png"
    single_image_dim: {side}
    single_image_dim: {side}
  }}
}}
"""


@checked
def export_projector(
    folder: str | os.PathLike[str],
    model: keras.Model,
    images: Examples,
    *,
    most: Count = 2000,
    thumbnail: Side = 48,
    seed: int = 0,
) -> Path:
    """Writes embeddings, labels and thumbnails for the projector.

    `tensorboard --logdir FOLDER` shows them under "Projector". The files are
    `embeddings.tsv`, `labels.tsv` (row of the image, label, class name),
    `sprite.png` and `projector_config.pbtxt`.

    Args:
        folder: The folder to write to.
        model: A model that returns embeddings.
        images: The examples. Those that are not images are shown by their
            names.
        most: The largest number of examples to export. If there are more, they
            are selected at random.
        thumbnail: Side of a thumbnail, in pixels; smaller if the sprite would
            exceed the size that the projector allows.
        seed: Seed of the selection.

    Returns:
        The path of the configuration.

    Raises:
        ValueError: If `most` or `thumbnail` is not positive.
    """
    folder = Path(folder)
    rows = np.arange(len(images))
    if len(rows) > most:
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(rows, most, replace=False))
    chosen = images.select(rows)
    with atomic_file(folder / "embeddings.tsv") as partial:
        np.savetxt(partial, embed(model, chosen), fmt="%.6g", delimiter="\t")
    _write_labels(folder / "labels.tsv", chosen, rows.tolist())
    across = int(np.ceil(np.sqrt(len(rows))))
    side = min(thumbnail, LARGEST_SPRITE // across)
    pictures = seen(images, rows, images.view_for(model))
    _write_sprite(folder / "sprite.png", pictures, across, side)
    config = folder / "projector_config.pbtxt"
    write_atomically(config, CONFIG.format(side=side))
    return config


def _write_labels(path: Path, images: Examples, rows: list[int]) -> None:
    with (
        atomic_file(path) as partial,
        partial.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["row", "label", "class"])
        labels = class_column(images, np.arange(len(images))).tolist()
        for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
            # The projector splits at every tab and end of line.
            name = " ".join(images.class_called(place).split())
            writer.writerow([row, " ".join(str(label).split()), name])


def _write_sprite(path: Path, pictures: Pixels, across: int, side: int) -> None:
    from PIL import Image

    sprite = Image.new("RGB", (across * side, across * side))
    for number, picture in enumerate(pictures):
        pixels = picture[..., 0] if picture.shape[2] == 1 else picture
        image = Image.fromarray(pixels).convert("RGB").resize((side, side))
        row, column = divmod(number, across)
        sprite.paste(image, (column * side, row * side))
    with atomic_file(path) as partial:
        sprite.save(partial)


class EmbeddingTensorBoard(Checked, keras.callbacks.Callback):
    """Logs training to TensorBoard.

    After every epoch, it writes the Keras logs: the loss and its terms
    ("terms/…"), validation metrics ("validation/…", if the callback that
    measures them comes earlier in the list), the weight of every term
    ("weights/…"; exp(−s) for a learned one), and the learning rate. Every
    `every` epochs, it also writes histograms of the Euclidean distances of
    positive and negative pairs ("distances/…"); a grid of queries and their
    nearest images ("retrieval"); and, with `batch`, the share of pairs that
    still have a gradient ("active pairs/…", see `active_pairs`).

    Training is not affected by it, and continues with a warning if the log
    cannot be written. The package `tensorboard` is required, and
    `tensorboard --logdir FOLDER` shows the log.

    Args:
        folder: The folder to write to.
        images: Examples to embed, for instance of validation classes: a set
            with labels, or arrays `(x, y)`.
        batch: A training batch from the pipeline, `(x, targets)`, such as
            `next(iter(pipeline))`. Take it from a pipeline with a separate
            sampler, because iterating plans an epoch.
        every: Number of epochs between the parts that need embeddings.
        num_pairs: The largest number of positive and of negative pairs in the
            histograms.
        num_queries: Number of queries in the grid.
        projector: The largest number of images to export for the projector when
            training ends; 0 for none. See `export_projector`.
        seed: Seed of all random selections.

    Attributes:
        seconds: Time spent on logging so far.

    Raises:
        ImportError: If tensorboard is not installed.
        ValueError: If `images` is not a set with labels, or a number is
            invalid.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        images: Any,
        *,
        batch: tuple[Any, Any] | None = None,
        every: Count = 1,
        num_pairs: Count = 20_000,
        num_queries: Count = 6,
        projector: NonNegativeInt = 2000,
        seed: int = 0,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        import_extra(owner, "tensorboard", "tensorboard")
        self.folder = Path(folder)
        self.images = as_examples(images, "images", owner)
        self._labels = any_labels_of(self.images, "images.labels", owner)
        self.batch = batch
        self.every = every
        self.num_pairs = num_pairs
        self.num_queries = num_queries
        self.projector = projector
        self.seed = seed
        self.seconds = 0.0
        self._writer: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with self._goes_on(f"log epoch {epoch + 1}"):
            if self._writer is None:
                writer = tf.summary.create_file_writer(str(self.folder))
                self._writer = writer
            with self._writer.as_default(step=epoch + 1):
                self._log_scalars(logs or {})
                if is_due(epoch, self.every, self.params["epochs"]):
                    self._log_embeddings()
            self._writer.flush()

    def on_train_end(self, logs: Any = None) -> None:
        with self._goes_on("export to the projector"):
            if self.projector:
                export_projector(
                    self.folder,
                    self.model,
                    self.images,
                    most=self.projector,
                    seed=self.seed,
                )
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {"seconds": self.seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self.seconds = state["seconds"]

    @contextmanager
    def _goes_on(self, what: str) -> Iterator[None]:
        """Lets training continue if the log cannot be written."""
        start = time.perf_counter()
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            logger.warning(
                "EmbeddingTensorBoard could not %s: %s. Training continues.",
                what,
                error,
            )
        self.seconds += time.perf_counter() - start

    def _log_scalars(self, logs: dict[str, float]) -> None:
        terms = self.model.objective.terms
        for name, value in logs.items():
            if name.startswith("val_"):
                name = f"validation/{name.removeprefix('val_')}"
            elif name in terms:
                name = f"terms/{name}"
            tf.summary.scalar(name, value)
        for name in terms:
            weight = self.model.weighting.weight_at(
                name, self.model.optimizer.iterations
            )
            tf.summary.scalar(f"weights/{name}", weight)
        if "learning_rate" not in logs:
            rate = float(self.model.optimizer.learning_rate)
            tf.summary.scalar("learning_rate", rate)

    def _log_embeddings(self) -> None:
        embeddings = embed(self.model, self.images)
        chosen = self._labels, self.num_pairs, self.seed
        for kind, (i, j) in (
            ("positive", positive_pairs(*chosen)),
            ("negative", negative_pairs(*chosen)),
        ):
            if len(i):
                differences = embeddings[i] - embeddings[j]
                distances = np.linalg.norm(differences, axis=1)
                tf.summary.histogram(f"distances/{kind}", distances)
        tf.summary.image("retrieval", self._grid(embeddings)[None])
        if self.batch is None:
            return
        for term, shares in active_pairs(self.model, *self.batch).items():
            for kind, share in shares.items():
                tf.summary.scalar(f"active pairs/{term}, {kind}", share)

    def _grid(self, embeddings: FloatArray) -> Any:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure = retrieval_picture(
            self.model, self.images, embeddings, self.num_queries, self.seed
        )
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3]
