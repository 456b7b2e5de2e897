"""Embeddings, labels and thumbnails for TensorBoard's projector."""

import csv
import os
from pathlib import Path

import keras
import numpy as np

from keras_dml.data import Examples
from keras_dml.data.pictures import class_column, each_picture
from keras_dml.evaluation import embed
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.files import atomic_file, write_atomically
from keras_dml.utils.types import Count, Side

MAX_SPRITE_SIDE = 8192
"""Largest side of a sprite that the projector can show, in pixels."""

_CONFIG = """embeddings {{
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


@check_arguments
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
    from PIL import Image

    folder = Path(folder)
    rows = np.arange(len(images))
    if len(rows) > most:
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(rows, most, replace=False))
    selection = images.select(rows)
    with atomic_file(folder / "embeddings.tsv") as partial:
        np.savetxt(partial, embed(model, selection), fmt="%.6g", delimiter="\t")
    with (
        atomic_file(folder / "labels.tsv") as partial,
        partial.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["row", "label", "class"])
        labels = class_column(selection, np.arange(len(selection))).tolist()
        for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
            # The projector splits at every tab and end of line.
            name = " ".join(selection.class_called(number).split())
            writer.writerow([row, " ".join(str(label).split()), name])
    columns = int(np.ceil(np.sqrt(len(rows))))
    side = min(thumbnail, MAX_SPRITE_SIDE // columns)
    sprite = Image.new("RGB", (columns * side, columns * side))
    pictures = each_picture(images, rows, images.view_for(model))
    for number, picture in enumerate(pictures):
        pixels = picture[..., 0] if picture.shape[2] == 1 else picture
        image = Image.fromarray(pixels).convert("RGB").resize((side, side))
        y, x = divmod(number, columns)
        sprite.paste(image, (x * side, y * side))
    with atomic_file(folder / "sprite.png") as partial:
        sprite.save(partial)
    config = folder / "projector_config.pbtxt"
    write_atomically(config, _CONFIG.format(side=side))
    return config
