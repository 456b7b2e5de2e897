"""The process of one run, a script; see `execution`."""

import json
import os
import signal
import sys
import threading
import traceback


def main() -> None:
    """Reads an order, trains it, and answers."""
    # Ctrl-C reaches every process of a terminal; the benchmark decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What is printed goes into the log.
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    error = None
    try:
        error = (_try_out if "recipes" in order else _train)(**order)
    except Exception as problem:  # Whatever it is, the others go on.
        traceback.print_exc()
        error = f"{type(problem).__name__}: {problem}"
    json.dump({"error": error}, answer)
    answer.close()


def _train(recipe: str, folder: str, save_every: str | None) -> str | None:
    """Trains; says what could not be saved, if it was not all."""
    from functools import partial

    import yaml

    from keras_dml import recipes, runs
    from keras_dml.resuming import StateError
    from keras_dml.runs.folder import changed_settings

    checked = recipes.validate(yaml.safe_load(recipe), folder)
    train = partial(
        runs.train, checked, folder, verbose=2, save_every=save_every
    )
    # One that had not ended, with other settings, is replaced.
    goes_on = not changed_settings(folder, checked)
    try:
        outcome = train(resume=goes_on, overwrite=not goes_on)
    except StateError as error:
        print(f"Trained again from the beginning: {error}")
        outcome = train(overwrite=True)
    return "; ".join(outcome.unsaved_lines()) or None if outcome else None


def _try_out(recipes: list[str]) -> str | None:
    """Builds the models of recipes; says of which that is not possible."""
    import keras
    import yaml

    from keras_dml.recipes import building, validate
    from keras_dml.runs.training import check_start, try_out

    checked = [validate(yaml.safe_load(x), "benchmark") for x in recipes]
    problems, splits = [], {}
    for recipe in checked:
        about = repr((recipe.data, recipe.train_on, recipe.seed))
        try:
            check_start(recipe, [])
            if about not in splits:  # Of one data set at a time.
                splits = {about: building.splits(recipe)}
            try_out(recipe, splits[about])
        except Exception as error:
            problems.append(f"{recipe.name}: {error}")
        keras.utils.clear_session()
    return "\n".join(problems) or None


def _end_with_parent() -> None:
    # Not through `sys.stdin`, whose lock would disturb the way out.
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
