"""Embeddings for TensorBoard's projector."""

import csv
import os
from pathlib import Path

import keras
import numpy as np

from keras_dml.data import ImageSet, View
from keras_dml.data.fields import Pixels
from keras_dml.data.pictures import seen
from keras_dml.evaluation import embed
from keras_dml.utils.arguments import check_count

LARGEST_SPRITE = 8192
"""Side of the largest sprite that the projector shows, in pixels."""

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


def export_projector(
    folder: str | os.PathLike[str],
    model: keras.Model,
    images: ImageSet,
    *,
    most: int = 2000,
    thumbnail: int = 48,
    seed: int = 0,
) -> Path:
    """Writes embeddings, labels and thumbnails for the projector.

    `tensorboard --logdir FOLDER` shows them under "Projector". The files
    are `embeddings.tsv`, `labels.tsv` (row of the image, label, name of
    the class), `sprite.png` and `projector_config.pbtxt`.

    Args:
        folder: Where to write.
        model: From images to embeddings.
        images: The images.
        most: Images to export; of more, a random selection.
        thumbnail: Side of a thumbnail, in pixels; less where the sprite
            would be larger than the projector allows.
        seed: Seed of the selection.

    Returns:
        The path of the configuration.

    Raises:
        ValueError: If `most` or `thumbnail` is not positive.
    """
    check_count("export_projector", "most", most)
    check_count("export_projector", "thumbnail", thumbnail)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.arange(len(images))
    if len(rows) > most:
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(rows, most, replace=False))
    chosen = images.select(rows)
    np.savetxt(
        folder / "embeddings.tsv",
        embed(model, chosen),
        fmt="%.6g",
        delimiter="\t",
    )
    _write_labels(folder / "labels.tsv", chosen, rows.tolist())
    across = int(np.ceil(np.sqrt(len(rows))))
    side = min(thumbnail, LARGEST_SPRITE // across)
    pictures = seen(images, rows, View.of(model))
    _write_sprite(folder / "sprite.png", pictures, across, side)
    config = folder / "projector_config.pbtxt"
    config.write_text(CONFIG.format(side=side), encoding="utf-8")
    return config


def _write_labels(path: Path, images: ImageSet, rows: list[int]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["row", "label", "class"])
        for row, label in zip(rows, images.labels.tolist(), strict=True):
            # The projector splits at every tab and end of line.
            name = " ".join(str(images.names.get(label, label)).split())
            writer.writerow([row, label, name])


def _write_sprite(path: Path, pictures: Pixels, across: int, side: int) -> None:
    from PIL import Image

    sprite = Image.new("RGB", (across * side, across * side))
    for number, picture in enumerate(pictures):
        pixels = picture[..., 0] if picture.shape[2] == 1 else picture
        image = Image.fromarray(pixels).convert("RGB").resize((side, side))
        row, column = divmod(number, across)
        sprite.paste(image, (column * side, row * side))
    sprite.save(path)
