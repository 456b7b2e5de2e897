"""Images of `tensorflow_datasets` as files, for reading them by row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_dml.utils.progress import track

INDEX = "images.json"
"""The file that lists what is known about the images, written last."""


def file_name(number: int) -> str:
    """The name of an image's file, whatever its format."""
    return f"{number:06d}.jpg"


def unpacked(
    dataset: Any, image: str, folder: Path, part: str
) -> Iterator[dict[str, Any]]:
    """Writes images in their original encoding, and yields their records.

    Args:
        dataset: A `tf.data.Dataset` of records with encoded images.
        image: Name of the image field.
        folder: Folder for the files.
        part: Name of the data in the progress bar.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total = int(dataset.cardinality())
    records = track(dataset.as_numpy_iterator(), total, f"Unpacking {part}")
    for number, record in enumerate(records):
        (folder / file_name(number)).write_bytes(record[image])
        yield record
