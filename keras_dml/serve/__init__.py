"""The built-in server: the REST API of TensorFlow Serving, and a web page.

Open first: `server`, whose `serve` is the command, then `app`, all addresses.
Every request passes `guard` (token, limits, errors), is read by `rest` or
`page`, and runs in `service`, joined with others. `sources` and `loading` make
what is served of files, `reloading` replaces it; until there is something,
`reception` answers. `limits` and `memory` bound what pictures take.

Imports: `reports`, `runs` and below.
"""

from keras_dml.serve.settings import Settings

__all__ = ["Settings"]
