"""Files that become unreadable after they were listed."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import backbones, evaluation, methods, recipes
from keras_dml.data import (
    ClassBalanced,
    ImageSet,
    concatenate,
    image_folder,
    pipeline,
    table,
)
from keras_dml.embedding import embed, embed_shards
from keras_dml.search import Index
from tests.conftest import quick
from tests.runs.small_run import write_images

BAD, COUNT = 7, 48


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    write_images(tmp_path / "images", classes=8, images=6)
    return sorted((tmp_path / "images").rglob("*.png"))


def as_set(paths: list[Path], kind: str, policy: str) -> ImageSet:
    root = paths[0].parents[1]
    if kind == "folder":
        return image_folder(root, on_bad_file=policy)
    file = root.parent / "table.csv"
    lines = [f"{x},{x.parent.name},test" for x in paths]
    lines += [f"{paths[0]},a,train", f"{paths[0]},a,train"]
    file.write_text("\n".join(["path,label,split", *lines]))
    return table(file, validation=0, on_bad_file=policy).test


def spoil(path: Path | str) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:60])


def flat() -> keras.Model:
    return keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Flatten()])


def batches(images: ImageSet, **options: Any) -> Any:
    sampler = ClassBalanced(images.labels, 8, 6)  # All, in every batch.
    return pipeline(images, sampler, 16, channels=1, **options)


def fit(images: ImageSet) -> None:
    model = methods.baseline(flat(), embedding_dim=4, loss="contrastive")
    model.compile("sgd")
    spoiled = Path(images.paths[BAD]).read_bytes()
    Path(images.paths[BAD]).write_bytes(good_bytes(images))

    def on_epoch_end(epoch: int, logs: Any) -> None:
        Path(images.paths[BAD]).write_bytes(spoiled)

    callback = keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
    model.fit(batches(images), epochs=3, verbose=0, callbacks=[callback])
    model.evaluate(batches(images), verbose=0)


def good_bytes(images: ImageSet) -> bytes:
    return Path(images.paths[BAD + 1]).read_bytes()


def check_batch(images: ImageSet, **options: Any) -> None:
    (x, y), *_ = batches(images, **options)
    by_row = dict(zip(y["index"].numpy().tolist(), x.numpy(), strict=True))
    for row, pixels in by_row.items():
        # The next file of its class takes the place of the bad one.
        expected = images.read(row + (row == BAD))
        np.testing.assert_array_equal(pixels, expected)
    assert BAD in by_row


def check_evaluation(images: ImageSet) -> None:
    good = np.delete(np.arange(COUNT), BAD)
    rest = ImageSet([images.paths[row] for row in good], images.labels[good])
    by_rows = evaluation.Protocol(np.arange(4, 20), np.arange(COUNT)[::-1])
    for protocol in (None, by_rows):
        results = evaluation.evaluate(
            flat(), images, protocol=protocol, exclude=np.arange(COUNT) % 5
        )
        if protocol is not None:
            positions = np.searchsorted(
                good, np.delete(by_rows.queries, BAD - 4)
            )
            protocol = evaluation.Protocol(
                positions, np.arange(COUNT - 1)[::-1]
            )
        expected = evaluation.evaluate(
            flat(), rest, protocol=protocol,
            exclude=(np.arange(COUNT) % 5)[good],
        )  # fmt: skip
        assert dict(results) == dict(expected)
        np.testing.assert_array_equal(
            results.query_rows, good[expected.query_rows]
        )


def check_embeddings(images: ImageSet) -> None:
    is_nan = np.isnan(embed(flat(), images)).any(axis=1)
    assert np.flatnonzero(is_nan).tolist() == [BAD]


def check_index(images: ImageSet) -> None:
    names = [f"key {row}" for row in range(COUNT)]
    columns = {"number": list(range(COUNT))}
    index = Index.build(flat(), images, columns, keys=names)
    hits = index.search(images.select([BAD + 1]), k=COUNT - 1)
    assert len(index) == COUNT - 1
    rows = sorted(hit.row["number"] for hit in hits[0])
    assert rows == np.delete(np.arange(COUNT), BAD).tolist()
    assert {hit.key for hit in hits[0]} == {names[row] for row in rows}


WAYS: dict[str, Callable[[ImageSet], object]] = {
    "a batch": check_batch,
    "a cached batch": lambda x: check_batch(x, cache="memory"),
    "fit": fit,
    "evaluate": check_evaluation,
    "embed": check_embeddings,
    "an index": check_index,
    "features": lambda x: backbones.features(frozen(), x, cache="memory"),
}


def frozen() -> keras.Model:
    model = flat()
    model.trainable = False
    return model


@pytest.mark.parametrize("kind", quick(["folder"], ["folder", "table"]))
@pytest.mark.parametrize("way", quick(["fit", "evaluate"], WAYS))
def test_bad_file_is_left_out_and_counted(paths, way, kind, caplog) -> None:
    images = as_set(paths, kind, "skip")
    name = str(images.paths[BAD])
    spoil(name)
    with caplog.at_level(logging.WARNING):
        WAYS[way](images)
    said = [x for x in caplog.messages if name in x]
    assert said[0].startswith("Left out: The image file")
    if way not in ("a batch", "a cached batch", "features"):
        assert said[1:] == [
            f"1 of {images.bad_files._total} image files could not be decoded "
            f"and were left out: {name}."
        ]


@pytest.mark.parametrize("kind", quick(["folder"], ["folder", "table"]))
@pytest.mark.parametrize(
    "way", ["fit", "evaluate", "embed", "an index", "features"]
)
def test_error_names_the_bad_file_alone(paths, way, kind) -> None:
    images = as_set(paths, kind, "raise")
    spoil(images.paths[BAD])
    with pytest.raises(ValueError, match="cannot be decoded") as caught:
        WAYS[way](images)
    message = str(caught.value)
    assert message.startswith(f"The image file '{images.paths[BAD]}'")
    assert "Graph" not in message and "Traceback" not in message


@pytest.mark.parametrize(
    "way", quick(["embed"], ["fit", "evaluate", "embed", "an index"])
)
def test_more_than_one_percent_of_bad_files_raises(paths, way) -> None:
    images = as_set(paths, "folder", "skip")
    for row in (BAD, BAD + 5, BAD + 9):
        spoil(images.paths[row])
    with pytest.raises(ValueError, match=r"at most 1 of 48 files \(1 %\)"):
        WAYS[way](images)


def test_images_without_labels_leave_bad_files_out(paths) -> None:
    images = as_set(paths, "folder", "skip").with_labels(None)
    spoil(images.paths[BAD])
    check_embeddings(images)
    assert len(Index.build(flat(), images)) == COUNT - 1


def test_class_without_a_good_file_raises(paths) -> None:
    images = as_set(paths, "folder", "skip").select([BAD, 20, 21])
    spoil(images.paths[0])
    with pytest.raises(ValueError, match="its class has no other file"):
        embed(flat(), images)


def test_policy_goes_with_the_images(paths) -> None:
    images = as_set(paths, "folder", "skip")
    parts = images.select([1, 2]), images.with_labels(None), images.relabeled()
    assert all(x.bad_files is images.bad_files for x in parts)
    assert concatenate(parts[:1] * 2).bad_files is images.bad_files
    assert as_set(paths, "table", "raise").bad_files is None
    for load in (image_folder, table):
        with pytest.raises(ValueError, match="`on_bad_file` of"):
            load(paths[0].parents[1], on_bad_file="ignore")


@pytest.mark.parametrize("name", ["image_folder", "table"])
def test_policy_is_a_key_of_recipes(paths, tmp_path, name) -> None:
    as_set(paths, "table", "raise")
    path = {"image_folder": "images", "table": "table.csv"}[name]
    recipe = recipes.validate(
        {
            "name": "x",
            "data": {
                "name": name, "path": str(tmp_path / path),
                "validation": 0, "on_bad_file": "skip",
            },
            "method": {"name": "baseline", "loss": "contrastive"},
        },
        "x",
    )  # fmt: skip
    splits = recipe.data.load(0)
    assert splits.test.bad_files is splits.train.bad_files is not None


def test_shards_raise_on_a_file_that_is_skipped(paths, tmp_path) -> None:
    images = as_set(paths, "folder", "skip")
    spoil(images.paths[BAD])
    with pytest.raises(ValueError, match="07.png' cannot be decoded"):
        embed_shards(flat(), images, tmp_path / "shards")
