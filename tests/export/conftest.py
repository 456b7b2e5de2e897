"""One model and one export of it, for all tests of the export."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml.data import View
from keras_dml.export import Gallery, export_model
from keras_dml.utils.files import file_lock
from tests.export.serving import make_model, random_images


@pytest.fixture(scope="package")
def model() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = make_model(view=View((16, 16), 1, 20))
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="package")
def gallery(model: keras.Model) -> Gallery:
    """Forty images, the last ten of which are the first ten again."""
    images = random_images(30, 18, 25, 1)
    images = np.concatenate([images, images[:10]])
    embeddings = model.predict(View.of(model).apply(images).numpy(), verbose=0)
    labels = [f"class {i % 3} é" for i in range(40)]
    return Gallery(embeddings, labels, ids=1000 + np.arange(40))


@pytest.fixture(scope="package")
def exported(model: keras.Model, gallery: Gallery, shared_folder: Path) -> Path:
    """With "lookup" of three neighbors, and a threshold.

    The first process that asks for it writes it; test_export compares it.
    """
    folder = shared_folder / "saved_models" / "glyphs" / "1"
    with (
        file_lock(shared_folder / "saved_models.lock"),
        pytest.MonkeyPatch.context() as patch,
    ):
        name = "keras_dml.export._export_model.compare"
        patch.setattr(name, lambda *args: None)
        if not folder.exists():
            export_model(model, folder, gallery=gallery, k=3, threshold=0.9999)
    return folder
