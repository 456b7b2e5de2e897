"""What the replicas of one machine do, checked in one process.

python -m tests.distribution.one_machine
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from tests.distribution.equality import all_options, differences, replicas
from tests.distribution.uneven import check_uneven
from tests.distribution.ungathered import check_ungathered


def check_options(strategy: tf.distribute.Strategy) -> None:
    """In a graph and in float32, as users train."""
    for case in all_options():
        for row in differences("options", case, strategy):
            assert row.loss <= 1e-6, row
            assert row.update <= 2e-5, row
            assert row.same_integers, row


def main() -> None:
    # A process can have replicas in one number only.
    strategy = replicas(3)
    check_options(strategy)
    check_uneven(strategy)
    check_ungathered(strategy)


if __name__ == "__main__":
    main()
