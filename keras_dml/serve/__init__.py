"""The built-in server: a search page, `POST /search`, and `:predict`.

Open first: `server`, whose `serve` is the command, then `app`, all addresses.
Every request passes its guard (token, limits, errors), is read by `predict` or
`page`, and runs in `service`, joined with others, on what is `current`: a model
and a gallery, which is replaced when it is saved. `pictures` decodes files, and
says what each takes of the memory that `service` shares out.

Imports: `reports`, `runs` and below.
"""

from keras_dml.serve.settings import Settings

__all__ = ["Settings"]
