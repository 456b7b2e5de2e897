"""Arrays in JSON hold what their type does."""

import pytest
import tensorflow as tf

from keras_dml.serve.errors import RequestError
from keras_dml.serve.requests import tensor


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
    for values in ([value], [0, value]):
        with pytest.raises(RequestError, match=f"`x` must .* type {dtype}"):
            tensor(values, spec, "x")


@pytest.mark.parametrize("dtype", ["bool", "int32", "complex64", "bfloat16"])
def test_no_numbers_are_of_any_type(dtype) -> None:
    found = tensor([[], []], tf.TensorSpec((None, None), dtype), "x")
    assert (found.dtype, found.shape) == (dtype, (2, 0))
