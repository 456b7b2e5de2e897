"""EmbeddingTensorBoard: what metric learning wants to see of a training."""

import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.callbacks.tensorboard_active_pairs import active_pairs
from keras_dml.callbacks.tensorboard_projector import export_projector
from keras_dml.data import ImageSet, View
from keras_dml.evaluation import embed
from keras_dml.evaluation.pairs import negative_pairs, positive_pairs
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray
from keras_dml.visualization import retrieval_grid


class EmbeddingTensorBoard(keras.callbacks.Callback):
    """Logs a training for TensorBoard.

    After every epoch it logs what is in the logs: the loss and its terms
    ("terms/…"), validation metrics ("validation/…", if the callback that
    measures them comes earlier in the list), the weight of every term
    ("weights/…"; for a learned one exp(−s)), and the learning rate. After
    every `every` epochs also: histograms of the Euclidean distances of
    positive and negative pairs ("distances/…"); a grid of queries and
    their nearest images ("retrieval"); and, with `batch`, the share of
    pairs that still have a gradient ("active pairs/…", see
    `active_pairs`).

    The training is the same with and without it. It needs the package
    `tensorboard`; `tensorboard --logdir FOLDER` shows what is logged.

    Args:
        folder: Where to write.
        images: Images to embed, for instance of validation classes.
        batch: A training batch, `(x, targets)`, as the pipeline yields
            it: `next(iter(pipeline))`, taken from a pipeline with a
            sampler of its own, since iterating plans an epoch.
        every: Epochs between the parts that need embeddings.
        num_pairs: Positive and negative pairs in the histograms, at most.
        num_queries: Queries in the grid.
        projector: Images to export for the projector when the training
            ends, at most; 0 for none. See `export_projector`.
        seed: Seed of what is chosen at random.

    Attributes:
        seconds: Time spent on it so far.

    Raises:
        ImportError: If tensorboard is not installed.
        ValueError: If a number is not as described.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        images: ImageSet,
        *,
        batch: tuple[Any, Any] | None = None,
        every: int = 1,
        num_pairs: int = 20_000,
        num_queries: int = 6,
        projector: int = 2000,
        seed: int = 0,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        check_installed(owner)
        check_count(owner, "every", every)
        check_count(owner, "num_pairs", num_pairs)
        check_count(owner, "num_queries", num_queries)
        check_count(owner, "projector", projector, least=0)
        self.folder = Path(folder)
        self.images = images
        self.batch = batch
        self.every = every
        self.num_pairs = num_pairs
        self.num_queries = num_queries
        self.projector = projector
        self.seed = seed
        self.seconds = 0.0
        self._writer: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._writer = tf.summary.create_file_writer(str(self.folder))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        start = time.perf_counter()
        is_last = epoch + 1 == self.params["epochs"]
        with self._writer.as_default(step=epoch + 1):
            self._log_scalars(logs or {})
            if is_last or epoch % self.every == self.every - 1:
                self._log_embeddings()
        self._writer.flush()
        self.seconds += time.perf_counter() - start

    def on_train_end(self, logs: Any = None) -> None:
        start = time.perf_counter()
        if self.projector:
            export_projector(
                self.folder,
                self.model,
                self.images,
                most=self.projector,
                seed=self.seed,
            )
        self._writer.close()
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
            tf.summary.scalar(f"weights/{name}", self._weight(name))
        if "learning_rate" not in logs:
            rate = float(self.model.optimizer.learning_rate)
            tf.summary.scalar("learning_rate", rate)

    def _weight(self, name: str) -> float:
        """What a term is multiplied with now."""
        weighting = self.model.weighting
        weight = weighting.given[name]
        if callable(weight):
            return float(weight(self.model.optimizer.iterations))
        variable = float(weighting.weights_by_term[name])
        return float(np.exp(-variable)) if weight == "learned" else variable

    def _log_embeddings(self) -> None:
        embeddings = embed(self.model, self.images)
        for kind, find in (
            ("positive", positive_pairs),
            ("negative", negative_pairs),
        ):
            i, j = find(self.images.labels, self.num_pairs, self.seed)
            if len(i):
                distances = np.linalg.norm(
                    embeddings[i] - embeddings[j], axis=1
                )
                tf.summary.histogram(f"distances/{kind}", distances)
        tf.summary.image("retrieval", self._grid(embeddings)[None])
        if self.batch is None:
            return
        for term, shares in active_pairs(self.model, *self.batch).items():
            for kind, share in shares.items():
                tf.summary.scalar(f"active pairs/{term}, {kind}", share)

    def _grid(self, embeddings: FloatArray) -> Any:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        rng = np.random.default_rng(self.seed)
        count = min(self.num_queries, len(embeddings))
        queries = np.sort(rng.choice(len(embeddings), count, replace=False))
        figure = retrieval_grid(
            self.images, embeddings, queries, View.of(self.model)
        )
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3]


def check_installed(owner: str) -> None:
    """Raises `ImportError` unless the package tensorboard is installed."""
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{owner} needs the package tensorboard, which is not installed. "
            'Use `pip install "keras-dml[tensorboard]"`.'
        ) from error
