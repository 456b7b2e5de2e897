"""A data folder and a recipe that train in a second."""

from pathlib import Path

from PIL import Image

from tests.conftest import blobs

RECIPE = """
name: small
data: {{name: image_folder, path: {folder}}}
backbone: {{name: small_convnet, input_shape: [16, 16, 1]}}
method:
  name: divide_and_conquer
  embedding_dim: 8
  num_learners: 2
  loss: contrastive
batches: {{classes_per_batch: 2, images_per_class: 3}}
epochs: 2
"""


def write_images(folder: Path, classes: int = 12, images: int = 6) -> Path:
    """Writes `folder/class/image.png`; returns the folder."""
    data = blobs(classes, images)
    for row, (pixels, label) in enumerate(
        zip(data.images, data.labels, strict=True)
    ):
        path = folder / f"class_{label:02}" / f"{row:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def write_recipe(folder: Path) -> Path:
    """Writes the images and the recipe; returns the recipe's path."""
    images = write_images(folder / "images")
    path = folder / "small.yaml"
    path.write_text(RECIPE.format(folder=images))
    return path
