"""The built-in server: a search page, `POST /search`, and `:predict`.

Open first: `server`, whose `serve` is the command, then `app` with all routes.
Every request passes its guard (token, limits, errors), is parsed by `predict`
or `page`, and runs in a batch of `service` on the `current` model and gallery,
which is replaced when it is saved. `pictures` decodes files, within the memory
that `service` allots.

Imports: `reports`, `runs` and below.
"""

from keras_dml.serve.settings import Settings

__all__ = ["Settings"]
