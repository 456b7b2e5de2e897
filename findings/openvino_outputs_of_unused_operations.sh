#!/usr/bin/env bash
# OpenVINO 2026.4.1 with TensorFlow 2.21.0: `convert_model` of a concrete
# function that returns a tensor, or a tuple of tensors, makes an output, too, of
# each operation whose result nothing uses, behind those that are returned. Of
# the same function that returns a dict, it does not.
#
# Output seen, of a function that computes relu(x) and does not use it:
#     returns a tensor: 2 outputs, the last is relu(x)
#     returns a tuple of 2: 3 outputs, the last is relu(x)
#     returns a dict of 2: 2 outputs
#
# Return a dict and read outputs by name, or only the first of them.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
    openvino==2026.4.1 tensorflow==2.21.0

cat >"$folder/program.py" <<'PROGRAM'
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CI"] = "true"  # Nothing is told of this use.

import numpy as np
import openvino
import tensorflow as tf

x = np.array([[-1, 2, -3, 4]], "float32")


def returning(make):
    def function(x):
        tf.nn.relu(x)
        return make(x)

    spec = [tf.TensorSpec((None, 4), "float32")]
    traced = tf.function(function, input_signature=spec, autograph=False)
    model = openvino.convert_model(traced.get_concrete_function())
    return list(openvino.compile_model(model, "CPU")(x).values())


CASES = {
    "a tensor": (1, lambda x: 2 * x),
    "a tuple of 2": (2, lambda x: (2 * x, 3 * x)),
    "a dict of 2": (2, lambda x: {"a": 2 * x, "b": 3 * x}),
}
for name, (count, make) in CASES.items():
    found = returning(make)
    said = f"returns {name}: {len(found)} outputs"
    assert np.array_equal(found[0], 2 * x)
    if "dict" in name:
        assert len(found) == count
    elif len(found) == count + 1:
        assert np.array_equal(found[-1], np.maximum(x, 0))
        said += ", the last is relu(x)"
    else:
        raise SystemExit(f"changed: {said}")
    print(said)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py"
