"""The files of TensorBoard's projector."""

import csv

import numpy as np
from PIL import Image

from keras_dml import methods
from keras_dml.callbacks import export_projector
from keras_dml.evaluation import embed


def test_projector_has_embeddings_labels_and_sprite(
    tiny_backbone, images, tmp_path
) -> None:
    model = methods.baseline(tiny_backbone, embedding_dim=4)
    config = export_projector(tmp_path, model, images, most=7, thumbnail=16)
    with (tmp_path / "labels.tsv").open() as file:
        header, *labels = csv.reader(file, delimiter="\t")
    assert header == ["row", "label", "class"]
    rows = [int(row) for row, *_ in labels]
    assert len(set(rows)) == 7
    assert [int(x) for _, x, _ in labels] == images.labels[rows].tolist()
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "embeddings.tsv"),
        embed(model, images)[rows],
        atol=1e-5,
    )
    with Image.open(tmp_path / "sprite.png") as sprite:
        assert sprite.size == (48, 48)
        pixels = np.asarray(sprite)[..., 0]
    for number, row in enumerate(rows):
        i, j = 16 * (number // 3), 16 * (number % 3)
        tile = pixels[i : i + 16, j : j + 16]
        np.testing.assert_array_equal(tile, images.images[row])
    assert "single_image_dim: 16" in config.read_text()
