"""The embedded server: REST as TensorFlow Serving speaks it, and a page."""

from keras_dml.serve.settings import Settings

__all__ = ["Settings"]
