import dataclasses

import numpy as np
import pytest

from keras_dml import recipes
from keras_dml.data import DataSplits
from keras_dml.runs.measuring import check_splits
from tests.conftest import blobs
from tests.runs.small_run import write_recipe


@pytest.fixture
def recipe(tmp_path):
    return recipes.load(write_recipe(tmp_path))


@pytest.fixture
def splits() -> DataSplits:
    return DataSplits.by_class(blobs(classes=12), "blobs")


def one_a_class(images):
    return images.select(np.unique(images.labels, return_index=True)[1])


def test_ordinary_data_pass(recipe, splits) -> None:
    check_splits(recipe, splits)


@pytest.mark.parametrize("role", ["validation", "test"])
def test_one_image_a_class(role, recipe, splits, tmp_path) -> None:
    alone = one_a_class(getattr(splits, role))
    splits = dataclasses.replace(splits, **{role: alone})
    with pytest.raises(ValueError, match=f"one {role} class") as error:
        check_splits(recipe, splits)
    assert str(tmp_path / "images") in str(error.value)
    assert "`data` of the recipe 'small'" in str(error.value)


def test_queries_and_gallery_without_a_common_class(recipe, splits) -> None:
    labels = splits.test.labels
    is_first = labels == labels[0]
    divided = dataclasses.replace(
        splits,
        query_rows=np.flatnonzero(is_first),
        gallery_rows=np.flatnonzero(~is_first),
    )
    with pytest.raises(ValueError, match="one test class"):
        check_splits(recipe, divided)


def test_a_query_does_not_find_itself(recipe, splits) -> None:
    row = np.array([0])
    same = dataclasses.replace(splits, query_rows=row, gallery_rows=row)
    with pytest.raises(ValueError, match="one test class"):
        check_splits(recipe, same)
    other = dataclasses.replace(same, gallery_rows=np.array([0, 1]))
    check_splits(recipe, other)
