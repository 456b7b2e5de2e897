"""Refit: the model trained again, on all training classes."""

from keras_dml.recipes import Recipe

REFIT = "refit"
"""Folder of that training, within the run's."""


def refit_recipe(recipe: Recipe, epochs: int) -> Recipe:
    """The same training on all training classes, ended after some epochs.

    What goes by the length of a training, such as a schedule of the learning
    rate or the phases of divide and conquer, goes by that of the first.

    Args:
        recipe: What was trained, with held-out classes.
        epochs: The number of epochs that was best for these.
    """
    return recipe.model_copy(
        update={
            "name": f"{recipe.name}-{REFIT}",
            "train_on": "all",
            "refit": False,
            "stop_after": epochs,
        }
    )
