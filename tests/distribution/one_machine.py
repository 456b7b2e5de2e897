"""What the replicas of one machine do, checked in one process.

    python -m tests.distribution.one_machine

prints, as JSON, which gaps of Keras are still there.
"""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.distribution.equality import replicas
from tests.distribution.keras_gaps import gaps
from tests.distribution.uneven import check_uneven
from tests.distribution.ungathered import check_ungathered


def main() -> None:
    # A process can have replicas in one number only.
    strategy = replicas(3)
    check_uneven(strategy)
    check_ungathered(strategy)
    print(json.dumps(gaps(strategy)))


if __name__ == "__main__":
    main()
