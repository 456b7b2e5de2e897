#!/usr/bin/env bash
# TensorFlow 2.21.0: tf.io.decode_and_crop_jpeg is not decode_jpeg and a slice
# where a JPEG stores colors at half the width and height (4:2:0, as cameras
# do). The first and last columns of a window differ, by up to 14 gray levels
# here, as the colors beside them are not decoded; rows agree. Without
# subsampling (4:4:4), every pixel is the same. The documentation calls it
# equivalent, and faster.
#
# Output seen:
#     4:4:4, top 8, left 16, 64×80: the same pixels
#     4:4:4, top 9, left 17, 63×81: the same pixels
#     4:2:0, top 8, left 16, 64×80: columns [0, 79] differ, by up to 9
#     4:2:0, top 9, left 17, 63×81: columns [80] differ, by up to 14
#     4:2:0, with two more columns on each side, which are cut off: the same
#
# Decode two more columns on each side, and cut them off.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
    pillow==13.0.0 tensorflow==2.21.0

cat >"$folder/program.py" <<'PROGRAM'
import io
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from PIL import Image

coarse = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
picture = Image.fromarray(coarse).resize((160, 120), Image.Resampling.BICUBIC)


def file(subsampling: int) -> bytes:
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=95, subsampling=subsampling)
    return written.getvalue()


def differences(content: bytes, window: list[int], more: int = 0):
    """By pixel of the window, whole columns (H, W)."""
    options = {"channels": 3, "dct_method": "INTEGER_ACCURATE"}
    top, left, height, width = window
    whole = tf.io.decode_jpeg(content, **options).numpy().astype(int)
    wider = [top, left - more, height, width + 2 * more]
    part = tf.io.decode_and_crop_jpeg(content, wider, **options).numpy()
    part = part[:, more : more + width]
    sliced = whole[top : top + height, left : left + width]
    return abs(part - sliced).max(axis=2)


def say(name: str, window: list[int], expected: list[int]) -> None:
    top, left, height, width = window
    found = differences(file({"4:4:4": 0, "4:2:0": 2}[name]), window)
    columns = np.flatnonzero(found.max(axis=0)).tolist()
    what = f"columns {columns} differ, by up to {found.max()}"
    print(f"{name}, top {top}, left {left}, {height}×{width}:",
          what if columns else "the same pixels")
    assert columns == expected, columns


aligned, odd = [8, 16, 64, 80], [9, 17, 63, 81]
say("4:4:4", aligned, [])
say("4:4:4", odd, [])
say("4:2:0", aligned, [0, 79])
say("4:2:0", odd, [80])
for window in (aligned, odd):
    assert not differences(file(2), window, more=2).any()
print("4:2:0, with two more columns on each side, which are cut off: the same")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py"
