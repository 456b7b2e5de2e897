"""The skeleton of a page: one file that asks for nothing else."""

from html import escape

# Whatever is in a page, it runs no script and fetches nothing.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1f; --quiet: #5c5c66;
  --page: #ffffff; --panel: #f4f4f6; --line: #d5d5db; --good: #11632f;
  --bad: #9c1c1c; }
@media (prefers-color-scheme: dark) { :root { --text: #ececf0;
  --quiet: #a9a9b4; --page: #16161a; --panel: #222228; --line: #3c3c46;
  --good: #6fd08c; --bad: #ff9b93; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; color: var(--text);
  background: var(--page); font: 1rem/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.quiet { color: var(--quiet); } .good { color: var(--good); }
.bad { color: var(--bad); }
.grid { display: grid; gap: .75rem; padding: 0; margin: 0; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); }
figure { margin: 0; height: 100%; padding: .5rem; background: var(--panel);
  border: 1px solid var(--line); border-radius: .5rem; }
figure.chosen { border: 2px solid var(--text); }
figure img, .missing { display: grid; place-items: center; width: 100%;
  aspect-ratio: 1; object-fit: contain; margin-bottom: .4rem; }
figcaption { font-size: .875rem; }
table { border-collapse: collapse; } .scroll { overflow-x: auto; }
th, td { padding: .25rem .75rem .25rem 0; text-align: left;
  border-bottom: 1px solid var(--line); }
"""


def document(title: str, body: str) -> str:
    """A page of HTML, light or dark as the reader's system is.

    It is readable on a telephone, and its content security policy lets
    nothing be fetched or run.

    Args:
        title: Plain text.
        body: HTML; names in it must be escaped by `html.escape`. Classes
            that the style knows: "grid" (a list of figures), "chosen"
            (a figure unlike the others), "missing" (in place of a
            picture), "scroll" (around a table), "quiet", "good" and "bad".
    """
    name = escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, '
        'initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{name}</h1>\n{body}\n</body>\n</html>\n"
    )
