"""The built-in server: the REST API of TensorFlow Serving, and a web page."""

from keras_dml.serve.settings import Settings

__all__ = ["Settings"]
