"""Arrays of numbers that are read without nested lists."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from keras_dml.serve.json_arrays import as_array, parse
from keras_dml.serve.number_arrays import read_numbers

SHAPES = arrays.array_shapes(min_dims=1, max_dims=5, max_side=4)
NUMBERS = st.one_of(
    arrays.arrays("uint8", SHAPES),
    arrays.arrays("int64", SHAPES),
    arrays.arrays(
        "float64",
        SHAPES,
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
)
SPACES = st.sampled_from([None, 1, "\t"])


@given(NUMBERS, st.sampled_from(["instances", "inputs"]), SPACES)
def test_is_what_a_parser_of_json_gives(array, key, indent) -> None:
    document = {"signature_name": "x", key: array.tolist(), "more": [1]}
    body = json.dumps(document, indent=indent).encode()
    found = read_numbers(body)
    assert found is not None
    assert found.keys() == parse(body).keys()
    assert found["signature_name"] == "x"
    assert found[key].shape == array.shape
    np.testing.assert_array_equal(found[key], array)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "[[1], [2, 3]]", "[[1], 2]", "[1, [2]]", "[[1][2]]", "[1 2]",
        "[1,]", "[,1]", "[01]", "[1e]", "[--1]", "[[1]", "[1]]", "[null]",
        '["a"]', "[true]", '[{"b64": "AA=="}]', "[NaN]", "1", '"[1]"',
        "[[[[[[[[[1]]]]]]]]]",
    ],
)  # fmt: skip
def test_everything_else_is_left_to_the_parser(text) -> None:
    assert read_numbers(b'{"instances": %b}' % text.encode()) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": {"instances": [1]}}',
        b'[{"instances": [1]}]',
        b'{"a": "\\"instances\\": [1]"}',
        b'{"instances": [1], "instances": [2]}',
        b'{"instances": [1], "a": }',
        b'{"outputs": [1]}',
        b"",
    ],
)
def test_only_examples_at_the_top_of_a_document_count(body) -> None:
    assert read_numbers(body) is None


def test_nothing_is_read_that_lists_would_refuse() -> None:
    """Texts are changed at random."""
    rng = random.Random(0)
    array = json.dumps(np.arange(24).reshape(2, 3, 4).tolist())
    read = 0
    for _ in range(3000):
        text = list(array)
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(text))
            text[at] = rng.choice(["", " ", *"[],0-.e", text[at] * 2])
        body = f'{{"instances": {"".join(text)}}}'.encode()
        document = read_numbers(body)
        if document is not None:
            read += 1
            expected = as_array(parse(body)["instances"], np.dtype("float32"))
            np.testing.assert_array_equal(document["instances"], expected)
    assert 100 < read < 2900
