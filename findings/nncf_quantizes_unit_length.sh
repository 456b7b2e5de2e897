#!/usr/bin/env bash
# NNCF 3.4.0 on a model that OpenVINO 2026.4.1 converts from Keras 3.15.1
# (TensorFlow 2.21.0): `nncf.quantize` with its defaults quantizes the
# normalization at the end of an embedding network, too. Embeddings, which a
# UnitNormalization layer made of length 1, have other lengths, so dot products
# are no cosines any more.
#
# Output seen on a CPU with AVX2 (lengths are of 64 images):
#     float32: lengths 1.000 to 1.000
#     int8: lengths 0.976 to 1.016, mean cosine to float32 1.000
#
# Quantize the network before the normalization only (`ignored_scope`), or
# normalize what comes out.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
    openvino==2026.4.1 nncf==3.4.0 tensorflow==2.21.0 keras==3.15.1

cat >"$folder/program.py" <<'PROGRAM'
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CI"] = "true"  # Nothing is told of this use.

import logging

import keras
import nncf
import numpy as np
import openvino
import tensorflow as tf

logging.getLogger("nncf").setLevel(logging.ERROR)
keras.utils.set_random_seed(0)
images = np.random.default_rng(0).uniform(size=(64, 32, 32, 3))
images = images.astype("float32")
given = keras.Input((32, 32, 3))
x = keras.layers.Conv2D(16, 3, activation="relu")(given)
x = keras.layers.GlobalAveragePooling2D()(x)
x = keras.layers.UnitNormalization()(keras.layers.Dense(64)(x))
model = keras.Model(given, x)

spec = [tf.TensorSpec((None, 32, 32, 3), "float32")]
traced = tf.function(lambda x: {"y": model(x)}, input_signature=spec)
whole = openvino.convert_model(traced.get_concrete_function())
data = nncf.Dataset([image[None] for image in images[:32]])
small = nncf.quantize(whole, data)

found = {}
for name, each in (("float32", whole), ("int8", small)):
    found[name] = openvino.compile_model(each, "CPU")(images)[0]
    lengths = np.linalg.norm(found[name], axis=1)
    said = f"{name}: lengths {lengths.min():.3f} to {lengths.max():.3f}"
    if name == "int8":
        cosines = (found["int8"] * found["float32"]).sum(axis=1) / lengths
        said += f", mean cosine to float32 {cosines.mean():.3f}"
        if np.abs(lengths - 1).max() < 1e-3:
            raise SystemExit(f"changed: {said}")
    else:
        assert np.abs(lengths - 1).max() < 1e-5
    print(said)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py"
