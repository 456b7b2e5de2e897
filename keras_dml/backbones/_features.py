"""`features`: the features of a frozen backbone, computed once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import keras
import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from keras_dml.data import cache_folder, eval_batches
from keras_dml.data.batches import Views, planned_batches
from keras_dml.data.caching import MEMORY_SHARE, available_memory, megabytes
from keras_dml.data.examples import WHOLE_BATCH, About, Examples
from keras_dml.data.feature_set import FEATURES, MASK, FeatureSet
from keras_dml.data.hashing import contents
from keras_dml.data.imageset import ImageSet
from keras_dml.data.loading import python_errors
from keras_dml.distribution.workers import on_this_process
from keras_dml.model.head import Head
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.models import lower_part, upper_part
from keras_dml.utils.progress import with_progress
from keras_dml.utils.tensorflow import tf

logger = logging.getLogger(__name__)

FeatureCache: TypeAlias = Literal["auto", "memory", "disk"]

Progress: TypeAlias = tuple[int, bool | None]
"""Number of batches, and whether to show progress."""

# Raise it when the features of an example, or their format, change.
_VERSION = "1"

_POOLED = ("avg", "max", "cls", "none")
"""Pooling that does not train, and leaves pooled features as they are."""


def features(
    model: keras.Model,
    examples: Examples,
    *,
    num_views: Annotated[int, Ge(0)] = 0,
    until: str | None = None,
    cache: FeatureCache = "auto",
    batch_size: int = 64,
    seed: int = 0,
    progress: bool | None = None,
    **views: Any,
) -> FeatureSet:
    """Computes the features of a frozen backbone, or of its lower part, once.

    If the backbone is frozen, its features train a head exactly as the images
    would, at a fraction of the cost. If only its lower layers are, the output
    of the last of them trains the layers above. The returned `FeatureSet`
    replaces the examples in samplers, `data.pipeline`, `fit`, callbacks and
    `evaluate`. The model stays the same and only skips its frozen part for
    them. It still takes images, and is saved and exported as usual.

    Features are computed in inference mode and in the precision of the model.
    On disk, they are identified by the weights and the config of the network,
    the examples (for files: path, size and modification time), and the views.

    Args:
        model: A `MetricModel`. If its head begins by pooling with "avg", "max",
            "cls" or "none", pooled features, (N, C), are stored instead of
            maps. Or a backbone, whose features are stored without pooling.
        examples: N examples.
        num_views: Number of random views per image, V, for training. One of
            them is drawn each time. With 0, the model trains on the test view.
        until: Name of the last frozen layer, as in `freeze_until` of
            `backbones.get`, if the layers above it train. All connections must
            pass through it. Ignored if the whole backbone is frozen.
        cache: Where to store features: "memory"; "disk", in
            `cache_folder()/features`, for reuse by later runs; or "auto" for
            memory if they take at most half of the available memory, and
            otherwise disk.
        batch_size: Number of examples to process at a time.
        seed: Seed of the random views.
        progress: Whether to show progress; None shows it in a terminal.
        **views: Options of random views, for `num_views`: `resize`, `crop`,
            `flip`, `pad` and others of `data.pipeline`.

    Returns:
        The features, with the labels, names and ids of the examples.

    Raises:
        ValueError: If a layer below the features is trainable, there are no
            examples, the backbone cannot be cut at `until`, or an argument is
            invalid.
    """
    owner = "backbones.features"
    check_choice(owner, "cache", cache, get_args(FeatureCache))
    check_count(owner, "num_views", num_views, minimum=0)
    check_count(owner, "batch_size", batch_size)
    if views and not num_views:
        raise ValueError(
            f"`{next(iter(views))}` of {owner} must only be given for random "
            "views. Received: num_views=0. Use num_views=4, or another number."
        )
    if not len(examples):
        raise ValueError(
            f"`examples` of {owner} must not be empty. Received: {examples!r}."
        )
    compute = _Compute(model, until)
    about = About(examples.labels, examples.names, examples.ids)
    view = examples.view_for(model)
    key = hashlib.sha256(_VERSION.encode())
    for part in (*compute.identity(), repr(view).encode(), *_keys(examples)):
        key.update(part)
    steps = -(-len(examples) // batch_size)
    test = _load_or_compute(
        compute,
        lambda: eval_batches(examples, view, batch_size),
        len(examples),
        _folder(key),
        cache,
        (steps, progress),
    )
    augmented = None
    if num_views:
        _, height, width, channels = compute.network.input_shape
        size = (height, width)
        random = Views(size=size, channels=channels, seed=seed, **views)
        key.update(f"{num_views}{random}".encode())
        augmented = _load_or_compute(
            compute,
            lambda: _random(examples, random, num_views, batch_size),
            len(examples) * num_views,
            _folder(key),
            cache,
            (steps * num_views, progress),
        )
    feature_set = FeatureSet.of(test, augmented, about, compute.layer)
    return feature_set.with_groups(examples.groups)


class _Compute:
    """The frozen beginning of a model, as a graph."""

    def __init__(self, model: keras.Model, until: str | None) -> None:
        self.network = getattr(model, "backbone", model)
        head = getattr(model, "head", None)
        self.pooling = None
        # Methods that cut the network have only its lower part as backbone,
        # which may be frozen as a whole.
        self.layer = until if self.network.trainable_variables else None
        if self.layer is not None:
            upper_part(self.network, self.layer)  # Raises if it cannot.
            self.network = lower_part(self.network, self.layer)
            output = self.network.outputs[0]
            if getattr(output, "_keras_mask", None) is not None:
                raise ValueError(
                    "`until` of backbones.features must be a layer whose "
                    "output has no mask, because layers above it would not "
                    f"receive the mask. Received: until={until!r}. Freeze the "
                    "whole backbone, or train through it."
                )
        elif isinstance(head, Head):
            pools = type(head).call is Head.call and head.pooling in _POOLED
            self.pooling = head.feature_pooling if pools else None
        _check_frozen(self.network, until)
        self._graph: Any = self._features
        if keras.backend.backend() == "jax":
            self._graph = on_this_process(
                self._features, self.network.variables
            )
        elif keras.backend.backend() == "tensorflow":
            self._graph = tf.function(self._features, reduce_retracing=True)

    def _features(self, inputs: Any) -> dict[str, tf.Tensor]:
        outputs = self.network(inputs, training=False)
        if self.pooling is not None:
            return {FEATURES: self.pooling(outputs)}
        mask = getattr(outputs, "_keras_mask", None)
        return {FEATURES: outputs} | ({} if mask is None else {MASK: mask})

    def __call__(self, inputs: Any) -> dict[str, npt.NDArray[Any]]:
        if keras.backend.backend() != "tensorflow":
            inputs = tf.nest.map_structure(np.asarray, inputs)
        return {
            name: keras.ops.convert_to_numpy(x)
            for name, x in self._graph(inputs).items()
        }

    def identity(self) -> Iterator[bytes]:
        """Bytes that identify the features."""
        config = keras.saving.serialize_keras_object(self.network)
        yield json.dumps(config, sort_keys=True, default=str).encode()
        yield b"" if self.pooling is None else self.pooling.pooling.encode()
        for weight in self.network.weights:
            array = np.ascontiguousarray(keras.ops.convert_to_numpy(weight))
            yield f"{array.shape}{array.dtype}".encode() + array.tobytes()


def _check_frozen(network: keras.Model, until: str | None) -> None:
    count = len(network.trainable_variables)
    if not count:
        return
    if until is None:
        what = "have a frozen backbone, because features of a backbone"
        way = (
            "`backbones.get(…, freeze=True)`, or `until`, the last frozen layer"
        )
    else:
        what = f"be frozen until {until!r}, because features of layers"
        way = f"`backbones.get(…, freeze_until={until!r})`"
    raise ValueError(
        f"`model` of backbones.features must {what} in training would change. "
        f"Received: {count} trainable variables. Use {way}."
    )


def _random(
    examples: Examples, views: Views, num_views: int, batch_size: int
) -> Iterator[Any]:
    """Batches of random views, starting with the first view of all examples."""
    count = len(examples)
    steps = -(-count // batch_size)
    rows = np.resize(np.arange(count), (steps, batch_size))
    planned = planned_batches(examples, views)
    for view in range(num_views):
        numbers = tf.range(view * steps, (view + 1) * steps, dtype=tf.int64)
        batches = planned(tf.constant(rows, tf.int64), numbers, WHOLE_BATCH)
        for step, batch in enumerate(batches):
            size = min(batch_size, count - step * batch_size)
            yield tf.nest.map_structure(lambda x, n=size: x[:n], batch)


def _load_or_compute(
    compute: _Compute,
    batches: Callable[[], Iterable[Any]],
    count: int,
    folder: Path,
    cache: str,
    progress: Progress,
) -> dict[str, Any]:
    """Arrays of all features by name, from disk or computed."""
    if cache != "memory" and folder.exists():
        logger.info("Features are read from %s.", folder)
        return _read(folder)
    total, show = progress
    store: _Store | None = None
    try:
        with python_errors():
            for batch in with_progress(
                batches(), total, "Computing features", show
            ):
                arrays = compute(batch)
                if store is None:
                    store = _Store(arrays, count, folder, cache)
                store.add(arrays)
        return store.finish() if store else {}
    finally:
        if store is not None and store.partial is not None:
            shutil.rmtree(store.partial, ignore_errors=True)


class _Store:
    """Arrays to fill, in memory or in a folder next to the final one."""

    def __init__(
        self,
        first: dict[str, npt.NDArray[Any]],
        count: int,
        folder: Path,
        cache: str,
    ) -> None:
        size = sum(count * x[:1].nbytes for x in first.values())
        if cache == "auto":
            fits = size <= MEMORY_SHARE * available_memory()
            cache = "memory" if fits else "disk"
        logger.info(
            "Features are stored in %s: %s.",
            folder if cache == "disk" else cache,
            megabytes(size),
        )
        self.folder = folder
        self.partial: Path | None = None
        self.done = 0
        if cache == "disk":
            name = f".{folder.name}.{secrets.token_hex(8)}"
            self.partial = folder.with_name(name)
            self.partial.mkdir(parents=True)
        self.arrays: dict[str, Any] = {}
        for name, x in first.items():
            shape = (count, *x.shape[1:])
            if self.partial is None:
                self.arrays[name] = np.empty(shape, x.dtype)
            else:
                file = self.partial / f"{name}.npy"
                self.arrays[name] = np.lib.format.open_memmap(
                    file, "w+", x.dtype, shape
                )

    def add(self, batch: dict[str, npt.NDArray[Any]]) -> None:
        size = len(batch[FEATURES])
        for name, x in batch.items():
            self.arrays[name][self.done : self.done + size] = x
        self.done += size

    def finish(self) -> dict[str, Any]:
        if self.partial is None:
            return self.arrays
        for array in self.arrays.values():
            array.flush()
        self.arrays.clear()
        try:
            os.rename(self.partial, self.folder)
        except OSError:
            if not self.folder.exists():
                raise
            # Another process has just stored the same features.
        return _read(self.folder)


def _read(folder: Path) -> dict[str, Any]:
    return {
        file.stem: np.load(file, mmap_mode="r")
        for file in sorted(folder.glob("*.npy"))
    }


def _folder(key: Any) -> Path:
    return cache_folder() / "features" / key.hexdigest()[:32]


def _keys(examples: Examples) -> Iterator[bytes]:
    """Bytes that identify examples and their order."""
    if isinstance(examples, ImageSet) and examples.paths is not None:
        for path in examples.paths:
            status = os.stat(path)
            state = f"{os.path.abspath(path)}\0{status.st_size}"
            yield f"{state}\0{status.st_mtime_ns}\n".encode()
        if examples.boxes is not None:
            yield examples.boxes.tobytes()
        return
    yield from contents(examples)
