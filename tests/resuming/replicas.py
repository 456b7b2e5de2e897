"""Trainings on two replicas that are ended within an epoch, and go on.

    python -m tests.resuming.replicas FOLDER METHOD…

Prints a line for each method: its name and what is different in the end.
"""

import sys
from pathlib import Path

import tensorflow as tf

from keras_dml.callbacks import Resume
from tests.resuming.trainings import Copy, bits, different, rows, train


def main(folder: str, *names: str) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for name in names:
        whole, killed = Path(folder) / name, Path(folder) / f"{name}-killed"
        whole.mkdir()
        copy = Copy(whole, killed, epoch=1, step=1)
        with strategy.scope():
            one = train(name, whole, copy, Resume(whole / "state", every=1))
        with strategy.scope():
            two = train(name, killed, Resume(killed / "state"))
        changed = different(bits(one), bits(two))
        print(name, changed, rows(whole) == rows(killed), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
