"""What this package computed and wrote before a change of its structure.

`python -m tests.goldens.measure FOLDER` writes signatures and values. On one
machine, the values of two versions are compared to the last bit;
`test_goldens.py` allows for another machine's rounding.
"""

import functools
import hashlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_dml
from keras_dml import backbones, methods
from keras_dml.embedding.engines import SUFFIXES, loader
from keras_dml.evaluation import evaluate_embeddings
from keras_dml.export import Gallery, export_model
from keras_dml.search import Index
from tests.export.serving import file_of, serve

HERE = Path(__file__).parent
METHODS: dict[str, dict[str, Any]] = {
    "abe": {
        "num_learners": 2,
        "branch": "relu_0",
        "attention_end": "relu_1",
        "loss": "contrastive",
    },
    "attentive_grouping": {"num_groups": 2, "key_dim": 3, "loss": "margin"},
    "baseline": {"loss": "multi_similarity", "pooling": "gem"},
    "bier": {"group_sizes": [2, 2, 4], "regressor_units": 5},
    "dcml": {"num_learners": 2, "num_compositors": 3, "loss": "triplet"},
    "distillation": {"loss": "triplet", "relation": "distance"},
    "diva": {"loss": "margin", "queue_size": 20, "psi_units": 16},
    "divide_and_conquer": {"num_learners": 2, "loss": "margin"},
    "dreml": {"num_learners": 2, "num_classes": 4, "num_meta_classes": 2},
    "ensemble": {"num_learners": 2, "loss": "contrastive"},
    "hdc": {"branches": ["relu_0"], "hard_shares": [1.0, 0.5]},
    "mic": {"loss": "margin", "num_surrogates": 4, "psi_units": 16},
    "s2sd": {"loss": "contrastive", "target_dims": [12, 16]},
}
FACTORIES = ("Flat", "IVF8,Flat", "HNSW8", "SQ8,RFlat")
CONDITIONS: dict[str, Any] = {
    "none": None,
    "one": {"label": 3},
    "all_but_one": {"label": {"!=": 3}},
    "below": {"price": {"<": 0.2}},
}


def signatures() -> dict[str, str]:
    """Every public name and how it is called."""
    return dict(_public(keras_dml, "keras_dml"))


def _public(module: Any, path: str) -> Iterator[tuple[str, str]]:
    for name in sorted(module.__all__):
        value = getattr(module, name)
        full = f"{path}.{name}"
        if inspect.ismodule(value):
            if hasattr(value, "__all__"):
                yield from _public(value, full)
        elif callable(value):
            yield full, _signature(value)
        else:
            yield full, type(value).__name__


def _signature(value: Any) -> str:
    """Names, kinds and defaults of arguments."""
    if inspect.isclass(value) and issubclass(value, keras.Operation):
        # Of the class, Python 3.11.2 finds that of `Operation.__new__`.
        value = functools.partial(value.__init__, None)
    try:
        arguments = inspect.signature(value).parameters.values()
    except ValueError:
        return "callable"
    text = ", ".join(
        str(x.replace(annotation=inspect.Parameter.empty)) for x in arguments
    )
    return re.sub(" at 0x[0-9a-f]+", "", text)


def images(count: int = 12, channels: int = 1) -> Any:
    rng = np.random.default_rng(0)
    return rng.integers(256, size=(count, 16, 16, channels), dtype=np.uint8)


def model_of(method: str) -> keras_dml.MetricModel:
    keras.utils.set_random_seed(5)
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    factory = methods.METHODS[method].value
    model: keras_dml.MetricModel = factory(
        backbone, embedding_dim=8, **METHODS[method]
    )
    return model


def _batch(model: keras_dml.MetricModel, step: int) -> tuple[Any, Any]:
    x = np.roll(images(), step, axis=0).astype("float32")
    labels = (np.arange(12) - step) // 3 % 4
    y = {
        "label": labels,
        "index": np.arange(12),
        "learner": np.full(12, step % 3 - 1),
        "surrogate": np.arange(12) % 4,
    }
    targets: dict[str, Any] = {k: v.astype("int64") for k, v in y.items()}
    if isinstance(model.objective, methods.DistillationObjective):
        targets["teacher"] = np.sin(np.arange(72.0).reshape(12, 6) + step)
    if model.momentum_encoder is not None:
        return {"image": x, "image2": x[:, :, ::-1]}, targets
    return x, targets


def weights_after_five_steps(method: str, jit: bool) -> dict[str, list[Any]]:
    """Of each variable the sum, the length and a digest of its bits."""
    model = model_of(method)
    model.compile(keras.optimizers.Adam(1e-3), jit_compile=jit)
    for step in range(5):
        model.train_on_batch(*_batch(model, step))
    return {
        # Keras numbers the optimizers of a process.
        re.sub(r"^adam_\d+/", "adam/", x.path): summary(
            keras.ops.convert_to_numpy(x.value)
        )
        for x in [*model.weights, *model.optimizer.variables]
    }


def summary(values: Any) -> list[Any]:
    exact = np.asarray(values, "float64")
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes())
    return [
        float(exact.sum()),
        float(np.sqrt(np.square(exact).sum())),
        digest.hexdigest()[:12],
    ]


def embedding_sets() -> dict[str, dict[str, Any]]:
    """Arguments of `evaluate_embeddings`."""
    rng = np.random.default_rng(1)
    labels = np.arange(120) % 10
    x = rng.normal(size=(10, 8))[labels] + rng.normal(size=(120, 8))
    ties = rng.integers(-1, 2, size=(120, 4)).astype(float)
    several = (rng.uniform(size=(120, 6)) < 0.4).astype(int)
    several[:, 0] = 1
    return {
        "own": {"embeddings": x, "labels": labels},
        "ties": {"embeddings": ties, "labels": labels},
        "gallery": {
            "embeddings": x[:40],
            "labels": labels[:40],
            "gallery": x[40:],
            "gallery_labels": labels[40:],
            "distance": "euclidean",
        },
        "several_labels": {"embeddings": x, "labels": several},
        "prefixes": {"embeddings": x, "labels": labels, "prefixes": [2, 4]},
    }


def metrics(name: str) -> dict[str, Any]:
    results = evaluate_embeddings(**embedding_sets()[name])
    return {str(k): float(v) for k, v in results.items()}


def index_of(factory: str) -> Index:
    rng = np.random.default_rng(2)
    labels = np.arange(600) % 12
    x = rng.normal(size=(12, 16))[labels] + rng.normal(size=(600, 16))
    columns = {"label": labels, "price": np.arange(600) / 600}
    return Index(x.astype("float32"), columns, factory=factory)


def hits(factory: str) -> dict[str, Any]:
    """Rows that five queries find, by condition, and after removals."""
    index = index_of(factory)
    rng = np.random.default_rng(3)
    queries = rng.normal(size=(5, 16)).astype("float32")
    ids = {
        name: index.search(queries, 5, where=where).ids.tolist()
        for name, where in CONDITIONS.items()
    }
    index.remove(where={"label": 3})
    ids["removed"] = index.search(queries, 5).ids.tolist()
    return ids


def trained() -> keras_dml.MetricModel:
    model = model_of("divide_and_conquer")
    model.compile(keras.optimizers.Adam(1e-3))
    model.train_on_batch(*_batch(model, 0))
    return model


def outputs() -> dict[str, Any]:
    """Of the signatures of an export, and of ONNX Runtime and LiteRT."""
    model = trained()
    x = images().astype("float32")
    gallery = Gallery(model.predict(x, verbose=0), list("abcdefghijkl"))
    files = [file_of(image) for image in images()]
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "1"
        export_model(model, saved, gallery=gallery, k=3)
        served = {
            "serving_default": serve(saved, x, "serving_default"),
            "encoded": serve(saved, files, "encoded"),
            "lookup": serve(saved, files, "lookup"),
        }
        for kind in ("onnx", "litert"):
            path = Path(folder, "model").with_suffix(SUFFIXES[kind])
            export_model(model, path, format=kind)
            served[kind] = {"embedding": loader(kind, "goldens")(path)(x)}
    return {
        signature: {key: decoded(value) for key, value in results.items()}
        for signature, results in served.items()
    }


def decoded(values: Any) -> Any:
    if values.dtype == object:
        values = np.asarray(values, "S").astype(str)
    return values.tolist()


def values() -> dict[str, Any]:
    return {
        "weights": {
            f"{method} {'xla' if jit else 'graph'}": weights_after_five_steps(
                method, jit
            )
            for method in METHODS
            for jit in (False, True)
        },
        "metrics": {name: metrics(name) for name in embedding_sets()},
        "outputs": outputs(),
        "hits": {factory: hits(factory) for factory in FACTORIES},
    }


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = json.dumps(signatures(), indent=0, sort_keys=True)
    (folder / "signatures.json").write_text(names + "\n")
    numbers = json.dumps(values(), sort_keys=True)
    (folder / "values.json").write_text(numbers + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
