"""Trainings on two replicas that are ended within an epoch, and go on.

    python -m tests.resuming.replicas FOLDER [METHOD…] [--precision POLICY]

Prints a line for each method: its name, the number of arrays compared with a
training without interruption, and which are different in the end.
"""

import argparse
from pathlib import Path

import keras

from keras_dml.distribution import use_devices
from tests.resuming.trainings import METHODS, goes_on


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    strategy = use_devices(2)
    keras.config.set_dtype_policy(given.precision)
    for name in given.methods:
        print(name, *goes_on(name, given.folder, strategy), flush=True)


if __name__ == "__main__":
    main()
