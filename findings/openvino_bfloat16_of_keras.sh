#!/usr/bin/env bash
# OpenVINO 2026.4.1 with Keras 3.15.1 on TensorFlow 2.21.0: a Dense layer under
# the policy mixed_bfloat16 is converted without a word, and then
# `compile_model` for the CPU raises an error; under mixed_float16 the same
# layer is converted, compiled and right.
#
# Output seen on a CPU with AVX2:
#     mixed_float16: compiled, within 1e-3 of Keras
#     mixed_bfloat16: converted, and refused when it is compiled
#
# Convert the layer under the policy float32, or fall back to Keras.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
    openvino==2026.4.1 tensorflow==2.21.0 keras==3.15.1

cat >"$folder/program.py" <<'PROGRAM'
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CI"] = "true"  # Nothing is told of this use.

import keras
import numpy as np
import openvino
import tensorflow as tf

x = np.random.default_rng(0).normal(size=(2, 8)).astype("float32")


def converted(policy: str):
    keras.utils.set_random_seed(0)
    layer = keras.layers.Dense(4, dtype=policy)
    layer.build((None, 8))

    def call(x):
        return tf.cast(layer(x), "float32")

    spec = [tf.TensorSpec((None, 8), "float32")]
    function = tf.function(call, input_signature=spec)
    found = openvino.convert_model(function.get_concrete_function())
    return call, found


call, model = converted("mixed_float16")
found = openvino.compile_model(model, "CPU")(x)[0]
assert np.abs(found - call(x).numpy()).max() < 1e-3
print("mixed_float16: compiled, within 1e-3 of Keras")

_, model = converted("mixed_bfloat16")
try:
    openvino.compile_model(model, "CPU")
except RuntimeError as error:
    assert "cpu_convert" in str(error), error
    print("mixed_bfloat16: converted, and refused when it is compiled")
else:
    raise SystemExit("changed: it compiles")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py"
