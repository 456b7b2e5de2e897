"""Recipes: YAML in, checked settings and the objects they describe out."""

from keras_dml.recipes.files import RecipeError, dump, load, validate
from keras_dml.recipes.schema import Recipe

__all__ = ["Recipe", "RecipeError", "dump", "load", "validate"]
