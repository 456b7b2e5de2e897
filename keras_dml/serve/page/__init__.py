"""The page for people, and the endpoints that it asks."""

from keras_dml.serve.page._routes import PLAIN, plain_failed, routes

__all__ = ["PLAIN", "plain_failed", "routes"]
