"""The page for people, and the endpoints that it asks."""

from keras_dml.serve.page.endpoints import routes

__all__ = ["routes"]
