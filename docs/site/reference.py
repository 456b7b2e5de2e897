"""Pages of the reference that `hooks.py` makes: a loss or a method each.

Of the docstring, and of what `examples.py` has written to `reference.json`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

DATA: dict[str, dict[str, Facts]] = json.loads(
    Path(__file__).with_name("reference.json").read_text(encoding="utf-8")
)

PAGE = """\
---
search:
  boost: 3
---
# {title}

{definition}. {link}

{plot}

::: keras_dml.{path}
    options:
      heading_level: 2

## Ten lines

```python
{code}
```

They print `{printed}`.
"""

PLOT = """\
<figure class="slopes">
<svg viewBox="0 0 360 200" role="img" aria-label="Slopes of {title}">
<path class="axis" d="M40 30V170M40 {zero:.0f}H350"/>
<path class="pull" d="M40 12h24"/><path class="push" d="M210 12h24"/>
<path class="pull" d="M{pull}"/><path class="push" d="M{push}"/>
<g text-anchor="end"><text x="35" y="34">{most:.3g}</text>
<text x="35" y="{zero:.0f}">0</text></g>
<g text-anchor="middle"><text x="114" y="186">−0.5</text>
<text x="195" y="186">0</text><text x="276" y="186">0.5</text>
<text x="195" y="199">cosine</text></g>
<text x="70" y="16">pull to the positive</text>
<text x="240" y="16">push from the negative</text>
</svg>
<figcaption>How strongly {pulled}: the derivative of the loss, with default
arguments, by one cosine while the other is 0.5.</figcaption>
</figure>"""

PULLED = {
    True: "an example is pulled to its own proxy and pushed from another",
    False: "a positive pair is pulled together and a negative one pushed apart",
}


def pages() -> Iterator[tuple[str, str]]:
    """Paths in docs/, and texts."""
    for name, loss in DATA["losses"].items():
        definition = f"`{name}` in recipes: {loss['definition']}"
        path = f"losses.{loss['class']}"
        link = "[All losses](../../losses/README.md)."
        plot = plotted(loss) if "curves" in loss else ""
        facts = {**loss, "definition": definition, "path": path, "plot": plot}
        yield f"reference/losses/{name}.md", PAGE.format(**facts, link=link)
    for name, method in DATA["methods"].items():
        link = f"[Drawing, costs and results](../../methods/{name}.md)."
        facts = {**method, "title": name, "path": f"methods.{name}", "plot": ""}
        definition = facts["definition"]
        facts["definition"] = definition[0].upper() + definition[1:]
        yield f"reference/methods/{name}.md", PAGE.format(**facts, link=link)


def plotted(loss: Facts) -> str:
    """How strongly pairs are pulled and pushed, by their similarity."""
    low = min(0, *map(min, loss["curves"]))
    scale = 140 / (1000 - low)
    drawn = [
        " ".join(
            f"{40 + 310 * i / (len(curve) - 1):.1f},"
            f"{170 - (y - low) * scale:.1f}"
            for i, y in enumerate(curve)
        )
        for curve in loss["curves"]
    ]
    return PLOT.format(
        title=loss["title"],
        pulled=PULLED[loss["on_proxies"]],
        most=loss["most"],
        zero=170 + low * scale,
        pull=drawn[0],
        push=drawn[1],
    )


def losses_menu() -> list[Facts]:
    families: dict[str, list[Facts]] = {}
    for name, loss in DATA["losses"].items():
        link = {loss["title"]: f"reference/losses/{name}.md"}
        families.setdefault(loss["family"], []).append(link)
    return [{family: families[family]} for family in sorted(families)]


def methods_menu() -> list[Facts]:
    return [{x: f"reference/methods/{x}.md"} for x in DATA["methods"]]


MADE = {
    "reference/losses/*": losses_menu,
    "reference/methods/*": methods_menu,
}


def menu(entry: Any) -> Any:
    """An entry of the menu, with pages in place of "reference/losses/*"."""
    if isinstance(entry, dict):
        return {title: menu(part) for title, part in entry.items()}
    if not isinstance(entry, list):
        return entry
    parts = (MADE[x]() if str(x) in MADE else [menu(x)] for x in entry)
    return [entry for part in parts for entry in part]
