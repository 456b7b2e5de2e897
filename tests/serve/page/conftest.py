"""Galleries for all tests of the page."""

from dataclasses import replace
from pathlib import Path

import pytest

from keras_dml.search import Index
from keras_dml.serve.current import Current
from tests.conftest import blobs
from tests.serve.conftest import columns


def with_columns(current: Current, folder: Path | None = None) -> Current:
    """A gallery whose pictures are files where there is a folder."""
    index = Index.build(current.model, blobs(), columns(folder))
    index.calibrate(index.embeddings, blobs().labels)
    return replace(current, index=index)


@pytest.fixture(scope="package")
def pictured(current, tmp_path_factory) -> Current:
    """A gallery whose pictures are files."""
    return with_columns(current, tmp_path_factory.mktemp("gallery"))
