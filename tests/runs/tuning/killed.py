"""A study that is killed in the second epoch of its second trial.

python -m tests.runs.tuning.killed FOLDER-OF-RECIPE-AND-SPACE STUDY
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras_dml
from keras_dml import recipes, runs
from keras_dml.runs.tuning.search import Judged


def main(given: str, folder: str) -> None:
    keras_dml.import_parts()

    def on_epoch_begin(self, epoch, logs=None) -> None:
        if self.trial.number == 1 and epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    Judged.on_epoch_begin = on_epoch_begin
    recipe = recipes.load(Path(given) / "recipe.yaml")
    space = json.loads((Path(given) / "space.json").read_text())
    runs.tune(recipe, space, folder, trials=3)


if __name__ == "__main__":
    main(*sys.argv[1:])
