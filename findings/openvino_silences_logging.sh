#!/usr/bin/env bash
# OpenVINO 2026.4.1 with TensorFlow 2.21.0: a TensorFlow function that
# `openvino.convert_model` refuses leaves Python's root logger changed. Its
# level is ERROR afterwards and it has one filter more, so warnings of the
# whole program are no longer seen. A conversion that succeeds restores both.
#
# Output seen:
#     before: level WARNING, 0 filters
#     after a conversion that succeeds: level WARNING, 0 filters
#     OpenVINO refuses Lgamma
#     after a conversion that is refused: level ERROR, 1 filters
#
# Save the level and the filters of the root logger and set them again around
# each call.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
    openvino==2026.4.1 tensorflow==2.21.0

cat >"$folder/program.py" <<'PROGRAM'
import logging
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CI"] = "true"  # Nothing is told of this use.

import openvino
import tensorflow as tf


def state() -> tuple[str, int]:
    root = logging.getLogger()
    return logging.getLevelName(root.level), len(root.filters)


def converted(operation):
    spec = [tf.TensorSpec((None, 8), "float32")]
    function = tf.function(operation, input_signature=spec)
    return openvino.convert_model(function.get_concrete_function())


def say(when: str) -> None:
    print(f"{when}: level {state()[0]}, {state()[1]} filters")


say("before")
assert state() == ("WARNING", 0), state()
converted(tf.nn.relu)
say("after a conversion that succeeds")
assert state() == ("WARNING", 0), state()
try:
    converted(tf.math.lgamma)
except Exception as error:
    assert "Lgamma" in str(error), error
    print("OpenVINO refuses Lgamma")
else:
    raise SystemExit("changed: it converts Lgamma")
say("after a conversion that is refused")
assert state() == ("ERROR", 1), state()
PROGRAM
"$folder/venv/bin/python" "$folder/program.py"
