"""Tests of texts: bytes as tokens, and the names of symbols."""

import hashlib

import numpy as np
import pytest

from keras_dml import data
from keras_dml.data import byte_tokens
from keras_dml.data.texts import slip


@pytest.fixture(scope="module")
def splits() -> data.DataSplits:
    return data.symbol_names()


def test_texts_are_the_same_on_every_machine(splits) -> None:
    texts = "\n".join(splits.trainval.ids + splits.test.ids)
    labels = [splits.train.labels, splits.validation.labels, splits.test.labels]
    digest = hashlib.sha256(texts.encode() + np.concatenate(labels).tobytes())
    assert digest.hexdigest()[:16] == "2812f4b16f267705"


def test_names_and_tokens_come_from_the_texts(splits) -> None:
    test = splits.test
    first = test.inputs([0])[0]
    assert bytes(first[first > 0].astype(np.uint8)).decode() == test.ids[0]
    assert test.names[int(test.labels[0])] == test.ids[0]
    assert "black chess knight" in {
        *splits.train.names.values(),
        *splits.validation.names.values(),
        *test.names.values(),
    }


def test_slips_keep_most_letters() -> None:
    rng = np.random.default_rng(1)
    name = "black chess knight"
    typed = [slip(name, rng) for _ in range(200)]
    assert np.mean([x != name for x in typed]) > 0.9
    assert {len(x) for x in typed} <= set(range(6, 24))
    # Slips keep letters or replace them by neighbors on the keyboard.
    common = [len(set(x) & set(name)) / len(set(name)) for x in typed]
    assert np.min(common) > 0.5


def test_byte_tokens_are_padded_with_zeros() -> None:
    tokens = byte_tokens(["abc", "é", "long text"], 4)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [
        [97, 98, 99, 0],
        [0xC3, 0xA9, 0, 0],
        [108, 111, 110, 103],
    ]
    assert byte_tokens(np.array(["a", "b"]), 1).tolist() == [[97], [98]]
    assert byte_tokens([], 3).shape == (0, 3)
