"""Trainings on two replicas that are ended within an epoch, and go on.

    python -m tests.resuming.replicas FOLDER [METHOD…] [--precision POLICY]

Prints a line for each method: its name, the number of arrays compared with a
training without interruption, and which are different in the end.
"""

import argparse
from pathlib import Path

import keras

from keras_dml.callbacks import Resume
from keras_dml.distribution import connect
from tests.resuming.trainings import (
    METHODS,
    Copy,
    bits,
    different,
    rows,
    train,
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    strategy = connect(2)
    keras.config.set_dtype_policy(given.precision)
    for name in given.methods:
        whole, killed = given.folder / name, given.folder / f"{name}-killed"
        whole.mkdir(parents=True)
        copy = Copy(whole, killed, epoch=1, step=1)
        resume = Resume(whole / "state", every=1)
        one = train(name, whole, copy, resume, strategy=strategy)
        resume = Resume(killed / "state")
        two = train(name, killed, resume, strategy=strategy)
        changed = different(bits(one), bits(two))
        changed += [] if rows(whole) == rows(killed) else ["metrics.csv"]
        print(name, len(bits(one)), changed, flush=True)


if __name__ == "__main__":
    main()
