"""Arrays in JSON: those read without nested lists are what lists are."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from keras_dml.serve.arrays import parse, tensor
from keras_dml.serve.errors import RequestError

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
def test_numbers_are_read_as_an_array(array, key, indent) -> None:
    document = {"signature_name": "x", key: array.tolist(), "more": [1]}
    found = parse(json.dumps(document, indent=indent).encode())
    assert isinstance(found[key], np.ndarray)
    assert found[key].shape == array.shape
    np.testing.assert_array_equal(found[key], array)
    assert {**found, key: array.tolist()} == document


@pytest.mark.parametrize(
    "text",
    [
        "[]", "[[1], [2, 3]]", "[[1], 2]", "[1, [2]]", "[null]", '["a"]',
        "[true]", '[{"b64": "AA=="}]', "[NaN]", "1", '"[1]"',
        "[" * 33 + "1" + "]" * 33,
    ],
)  # fmt: skip
def test_everything_else_is_left_to_the_parser(text) -> None:
    found = parse(b'{"instances": %b}' % text.encode())["instances"]
    assert not isinstance(found, np.ndarray)
    assert json.dumps(found) == text


@pytest.mark.parametrize(
    "text",
    ["[[1][2]]", "[1 2]", "[1,]", "[,1]", "[01]", "[1e]", "[--1]", "[[1]",
     "[1]]", "[1]["],
)  # fmt: skip
def test_what_is_no_json_is_refused(text) -> None:
    with pytest.raises(RequestError, match="must be JSON"):
        parse(b'{"instances": %b}' % text.encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": {"instances": [1]}}',
        b'[{"instances": [1]}]',
        b'{"a": "\\"instances\\": [1]"}',
        b'{"instances": [1], "instances": [2]}',
        b'{"outputs": [1]}',
    ],
)
def test_only_examples_at_the_top_of_a_document_count(body) -> None:
    assert parse(body) == json.loads(body)


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
        try:
            expected = json.loads(body)["instances"]
        except ValueError:
            with pytest.raises(RequestError):
                parse(body)
            continue
        found = parse(body)["instances"]
        read += isinstance(found, np.ndarray)
        assert np.array(found, object).tolist() == expected
    assert 100 < read < 2900


@pytest.mark.parametrize(
    ("dtype", "value", "is_exact"),
    [
        ("float32", 2**24, True),
        ("float32", 2**24 + 1, False),
        ("float32", -(2**53) - 1, False),
        ("float32", 1e39, False),
        ("float64", 1e39, True),
        ("float64", 2**53 + 1, False),
        ("float32", 10**400, False),
        ("uint8", 255, True),
        ("uint8", 256, False),
        ("uint64", 2**64 - 1, True),
        ("uint64", -1, False),
        ("int64", 2**63, False),
        ("int32", 1.0, False),
        ("float32", True, False),
        ("bool", True, True),
        ("bool", 1, False),
    ],
)
def test_a_type_must_hold_all_numbers(dtype, value, is_exact) -> None:
    spec = tf.TensorSpec((None,), dtype)
    if is_exact:
        found = tensor([value], spec, "x")
        assert (found.dtype, found.tolist()) == (dtype, [value])
        return
    for values in ([value], [0, value], np.array([0, value])):
        if isinstance(value, bool) and isinstance(values, np.ndarray):
            continue
        with pytest.raises(RequestError, match=f"`x` must .* type {dtype}"):
            tensor(values, spec, "x")


@pytest.mark.parametrize("dtype", ["bool", "int32", "complex64", "bfloat16"])
def test_no_numbers_are_of_any_type(dtype) -> None:
    found = tensor([[], []], tf.TensorSpec((None, None), dtype), "x")
    assert (found.dtype, found.shape) == (dtype, (2, 0))
