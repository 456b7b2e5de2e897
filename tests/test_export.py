"""Tests of the export: what it serves, holds, and leaves behind."""

import io
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_dml import backbones, export, methods
from keras_dml.data import View

SIZES = ((16, 16), (16, 24), (41, 23), (7, 50))

# Neither Keras nor the package can be imported where this runs.
CLIENT = """
import pickle, sys
sys.modules["keras"] = sys.modules["keras_dml"] = None
import tensorflow as tf
signatures = tf.saved_model.load(sys.argv[1]).signatures
served = []
for name, images in pickle.load(open(sys.argv[2], "rb")):
    embedding = signatures[name](images=tf.constant(images))["embedding"]
    served.append(embedding.numpy())
pickle.dump(served, open(sys.argv[3], "wb"))
"""


def make_model(channels: int = 1, **kwargs: Any) -> keras.Model:
    """Two learners, and a loss with weights that no export may hold."""
    return methods.divide_and_conquer(
        backbones.small_convnet((16, 16, channels), filters=(4, 8)),
        embedding_dim=8,
        learners=2,
        loss="margin",
        **kwargs,
    )


@pytest.fixture(scope="module")
def model() -> keras.Model:
    model = make_model(resize=20)
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def exported(model: keras.Model, tmp_path_factory: Any) -> Path:
    return export(model, tmp_path_factory.mktemp("saved_models") / "1")


def random_images(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(
        256, size=shape, dtype=np.uint8
    )


def predict(model: keras.Model, images: Any) -> Any:
    """Embeddings of a batch as evaluation computes them."""
    seen = View.of(model).apply(images).numpy()
    return model.predict(seen, verbose=0)


def serve(folder: Path, images: Any, name: str = "uint8") -> Any:
    signature = tf.saved_model.load(str(folder)).signatures[name]
    return signature(images=tf.constant(images))["embedding"].numpy()


def assert_same(served: Any, expected: Any) -> None:
    np.testing.assert_allclose(served, expected, rtol=0, atol=1e-5)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, hidden files and folders included."""
    return {
        str(x.relative_to(folder)): x.read_bytes() if x.is_file() else None
        for x in folder.rglob("*")
    }


# What it serves.


def test_a_process_without_keras_serves_what_predict_gives(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    requests: list[tuple[str, Any]] = []
    expected = []
    for size in SIZES:
        images = random_images(3, *size, 1)
        requests += [("uint8", images), ("float32", images.astype("float32"))]
        expected += [predict(model, images)] * 2
    colors = [random_images(*size, 3) for size in SIZES]
    jpeg = [tf.io.encode_jpeg(x).numpy() for x in colors]
    png = [tf.io.encode_png(x).numpy() for x in colors]
    requests.append(("encoded", [*jpeg, *png]))
    decoded = [np.asarray(PIL.Image.open(io.BytesIO(x))) for x in jpeg]
    expected.append(
        np.concatenate([predict(model, x[None]) for x in decoded + colors])
    )

    files = [tmp_path / "requests", tmp_path / "served"]
    files[0].write_bytes(pickle.dumps(requests))
    subprocess.run([sys.executable, "-c", CLIENT, exported, *files], check=True)

    served = pickle.loads(files[1].read_bytes())
    for embeddings, wanted in zip(served, expected, strict=True):
        assert_same(embeddings, wanted)
        norms = np.linalg.norm(embeddings, axis=1)
        np.testing.assert_allclose(norms, 1, atol=1e-5)
    # Else all of the above would hold for a constant embedding, too.
    assert np.ptp(served[-1], axis=0).max() > 0.01


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("input_dtype", ["float32", "uint8"])
def test_signatures_whatever_the_model_computes_in(
    policy: str, input_dtype: str, tmp_path: Path
) -> None:
    keras.config.set_dtype_policy(policy)
    path = export(make_model(), tmp_path / "1", input_dtype=input_dtype)
    signatures = tf.saved_model.load(str(path)).signatures
    taken = {}
    for name, signature in signatures.items():
        images = signature.structured_input_signature[1]["images"]
        taken[name] = (images.shape.rank, images.dtype.name)
        embedding = signature.structured_outputs["embedding"]
        assert embedding.dtype == "float32"
        assert embedding.shape.as_list() == [None, 8]
    assert taken == {
        "float32": (4, "float32"),
        "uint8": (4, "uint8"),
        "encoded": (1, "string"),
        "serving_default": (4, input_dtype),
    }


def test_encoded_files_take_the_channels_of_the_model(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    color_model = make_model(channels=3)
    color_exported = export(color_model, tmp_path / "1")
    for channels in (1, 3):
        image = random_images(20, 18, channels)
        file = tf.io.encode_png(image).numpy()
        for x, folder in ((model, exported), (color_model, color_exported)):
            assert_same(
                serve(folder, [file], "encoded"), predict(x, image[None])
            )


@pytest.mark.parametrize("file", [b"no image", b""])
def test_files_that_are_no_images_are_errors_of_the_request(
    exported: Path, file: bytes
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        serve(exported, [file], "encoded")


def test_plain_keras_model_is_exported_as_it_is(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    backbone = backbones.small_convnet((16, 16, 3), filters=(4, 8))
    pooled = keras.layers.GlobalAveragePooling2D()(backbone.output)
    plain = keras.Model(backbone.input, pooled)
    path = export(plain, tmp_path / "1")
    images = random_images(2, 33, 20, 3)
    served, predicted = serve(path, images), predict(plain, images)
    assert (served.dtype, predicted.dtype) == (np.float32, np.float16)
    assert_same(served, predicted)


# What it holds.


def test_only_weights_of_backbone_and_head_are_exported(
    model: keras.Model, exported: Path
) -> None:
    assert model.objective.variables and model.optimizer.variables
    stored = tf.train.list_variables(str(exported / "variables/variables"))
    held = [np.prod(x) for name, x in stored if "_CHECKPOINTABLE" not in name]
    wanted = [*model.backbone.variables, *model.head.variables]
    assert sorted(held) == sorted(np.prod(x.shape) for x in wanted)


# Refusals.


def test_other_weights_than_the_models_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    save = tf.saved_model.save

    def save_then_train(*args: Any, **kwargs: Any) -> None:
        save(*args, **kwargs)
        weight = model.backbone.get_layer("norm_1").beta
        weight.assign_add(keras.random.normal(weight.shape) * 1e-3)

    monkeypatch.setattr(tf.saved_model, "save", save_then_train)
    with pytest.raises(RuntimeError, match="differs by"):
        export(model, tmp_path / "saved_models" / "glyphs" / "1")
    assert contents(tmp_path) == {}


def test_refusal_names_the_signature_that_differs(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = tf.io.decode_image
    monkeypatch.setattr(
        tf.io, "decode_image", lambda *args, **kw: 255 - decode(*args, **kw)
    )
    with pytest.raises(RuntimeError, match="'encoded' differs"):
        export(model, tmp_path / "1")
    assert contents(tmp_path) == {}


def test_embeddings_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    model = make_model()
    model.backbone.get_layer("norm_1").beta.assign([float("nan")] * 8)
    with pytest.raises(RuntimeError, match="differs by nan"):
        export(model, tmp_path / "1")
    assert contents(tmp_path) == {}


def test_given_images_are_compared_too(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = View.apply

    def wrong_in_the_graph(view: View, images: Any) -> Any:
        seen = apply(view, images)
        is_wrong = (tf.shape(images)[-3] == 90) & (not tf.executing_eagerly())
        return tf.where(is_wrong, 255.0 - seen, seen)

    monkeypatch.setattr(View, "apply", wrong_in_the_graph)
    export(model, tmp_path / "1")
    with pytest.raises(RuntimeError, match="differs by"):
        export(model, tmp_path / "2", check=[random_images(90, 20, 1)])


@pytest.mark.parametrize("shape, dtype", [((9, 9, 3), "u1"), ((9, 9, 1), "f4")])
def test_unfit_images_are_refused(
    model: keras.Model, tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    images = [np.zeros((9, 9, 1), "u1"), np.zeros(shape, dtype)]
    with pytest.raises(ValueError, match=r"`check` of(.|\s)*check\[1\]"):
        export(model, tmp_path / "1", check=images)


def test_unfit_models_and_arguments_are_refused(
    model: keras.Model, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="input_dtype='float16'"):
        export(model, tmp_path / "1", input_dtype="float16")
    with pytest.raises(ValueError, match="one embedding an image"):
        export(backbones.small_convnet((16, 16, 1)), tmp_path / "1")
    with pytest.raises(ValueError, match="of known size"):
        export(backbones.small_convnet((None, None, 1)), tmp_path / "1")


# Where it goes.


def test_next_free_version_is_used(model: keras.Model, tmp_path: Path) -> None:
    folder = tmp_path / "glyphs"
    assert export(model, folder) == folder / "1"
    for name in ("9", "10a"):
        (folder / name).mkdir()
    assert export(model, folder) == folder / "10"


def test_overwriting_replaces_the_whole_export(
    model: keras.Model, tmp_path: Path
) -> None:
    path = export(model, tmp_path / "1")
    images = random_images(2, 16, 16, 1)
    other = make_model()
    assert np.abs(predict(other, images) - predict(model, images)).max() > 0.01
    assert export(other, path, overwrite=True) == path
    assert_same(serve(path, images), predict(other, images))
    assert [x.name for x in tmp_path.iterdir()] == ["1"]


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = contents(folder)
    yield
    assert contents(folder) == before


def test_what_exists_is_kept(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    with unchanged(exported.parent):
        with pytest.raises(FileExistsError, match="overwrite=True"):
            export(model, exported)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.tex").write_text("not an export")
    (tmp_path / "2").write_text("not even a folder")
    with unchanged(tmp_path):
        for version in ("1", "2"):
            with pytest.raises(FileExistsError, match="another version"):
                export(model, tmp_path / version, overwrite=True)


def test_export_of_another_process_is_kept(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "1" / "saved_model.pb"
    load = tf.saved_model.load

    def load_while_another_exports(*args: Any) -> Any:
        theirs.parent.mkdir()
        theirs.write_text("theirs")
        return load(*args)

    monkeypatch.setattr(tf.saved_model, "load", load_while_another_exports)
    with pytest.raises(OSError):
        export(model, tmp_path / "1")
    assert contents(tmp_path) == {"1": None, "1/saved_model.pb": b"theirs"}


def test_full_disk_leaves_what_was_there(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        for target in (exported, tmp_path / "saved_models" / "glyphs" / "1"):
            with unchanged(exported.parent), unchanged(tmp_path):
                with pytest.raises(OSError, match="cannot be written"):
                    export(model, target, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_interrupts_leave_what_was_there(
    model: keras.Model, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise KeyboardInterrupt
        return rename(path, target)

    with unchanged(exported.parent), monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            export(model, exported, overwrite=True)
