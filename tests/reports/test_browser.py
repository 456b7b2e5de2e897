"""The page in a browser, where one is installed."""

import pytest

from tests.reports.browser import Browser, is_there

pytestmark = pytest.mark.skipif(
    not is_there(), reason="needs chromium, chromedriver"
)

SELECTED = """return [...document.querySelectorAll('#queries :checked')]
    .map((option) => option.value)"""
MISSED = """
const data = JSON.parse(document.getElementById('data').textContent);
return data.queries.filter((query) => !data.neighbors[query][0][0][2])
    .map(String);
"""
TITLE = "return document.querySelector('#found h3').textContent"
OPTIONS = """return [...document.querySelectorAll('#queries label')].map((x) =>
    [x.querySelector('input').value, x.querySelector('img').alt])"""
CONTRASTS = """
const channel = (x) => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
const light = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map((x) => channel(x / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const paper = light(getComputedStyle(document.body).backgroundColor);
return [...document.querySelectorAll(
  'h1, p, a, td, th, .mark, figcaption, .name, .drawing svg')].map((x) => {
  const ink = light(getComputedStyle(x).color);
  return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
});
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.fixture(scope="module")
def page(run_of, page_of):
    return page_of(run_of("attentive_grouping"))


@pytest.mark.slow
def test_queries_are_chosen_by_mouse_and_keyboard(browser, page) -> None:
    browser.look(1280, 900, "light")
    browser.open(page)
    options = browser.run(OPTIONS)
    rows = [row for row, _ in options]
    assert browser.run(SELECTED) == [*browser.run(MISSED), *rows][:1]
    browser.click("#queries label:nth-child(3)")
    assert browser.run(SELECTED) == [rows[2]]
    assert options[2][1].startswith(browser.run(TITLE))
    browser.press("ArrowRight", "ArrowDown", "ArrowLeft")
    assert browser.run(SELECTED) == [rows[3]]
    assert options[3][1].startswith(browser.run(TITLE))
    focused = "return document.querySelector('#queries :focus-visible').value"
    assert browser.run(focused) == rows[3]
    browser.click("#found li button")
    assert browser.run(SELECTED) != [rows[3]]
    assert browser.run("return document.getElementById('status').textContent")
    assert browser.messages() == []


@pytest.mark.slow
def test_every_embedding_has_its_row(browser, page) -> None:
    browser.open(page)
    heads = browser.run(
        "return [...document.querySelectorAll('#found h4')]"
        ".map((x) => x.textContent.split(':')[0])"
    )
    assert heads == ["full embedding", "group 1", "group 2"]
    canvases = browser.run(
        "return [...document.querySelectorAll('#found .row')]"
        ".map((row) => row.querySelectorAll('canvas').length)"
    )
    assert canvases == [0, 1, 1]
    marks = browser.run(
        "return [...document.querySelectorAll('#found li')].every((x) => "
        "x.querySelector('.mark').textContent.trim() === "
        "(x.className === 'right' ? '✓' : '✗'))"
    )
    assert marks
    broken = browser.run(
        "return [...document.images].filter((x) => !x.naturalWidth).length"
    )
    assert broken == 0


@pytest.mark.slow
def test_queries_with_a_wrong_nearest_image_are_marked(browser, page) -> None:
    browser.open(page)
    missed = browser.run(MISSED)
    assert 0 < len(missed) < len(browser.run(OPTIONS))
    framed = browser.run(
        "return [...document.querySelectorAll('#queries label')].filter((x) => "
        "getComputedStyle(x).borderTopStyle === 'dashed')"
        ".map((x) => x.firstChild.value)"
    )
    assert framed == missed
    wrong_rows = [row for row, label in browser.run(OPTIONS)
            if label.endswith(", nearest image wrong")]  # fmt: skip
    assert wrong_rows == missed


@pytest.mark.slow
def test_strong_attention_is_bright(browser, page) -> None:
    """A dark overlay would be invisible on a black image."""
    browser.open(page)
    drawn = browser.run(
        """
        const { attention } = JSON.parse(
            document.getElementById('data').textContent);
        const query = document.querySelector('#queries :checked');
        return [...document.querySelectorAll('#found canvas')].map((x, i) => {
          const { data } = x.getContext('2d').getImageData(
              0, 0, x.width, x.height);
          const levels = atob(attention.maps[query.value][i]);
          return [...levels].map((level, at) => [level.charCodeAt(0),
              data[4 * at] + data[4 * at + 1] + data[4 * at + 2]]);
        });
        """
    )
    assert len(drawn) == 2
    for pixels in drawn:
        levels, brightness = zip(*sorted(pixels), strict=True)
        assert (levels[0], levels[-1]) == (0, 255)
        assert brightness[0] < 20 and brightness[-1] > 600
        # Colors are kept with their alpha in whole numbers: 2 of 255 off.
        for dark, bright in zip(brightness, brightness[1:], strict=False):
            assert bright >= dark - 3 * 2


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_page_fits_and_has_contrast(width, scheme, browser, page) -> None:
    browser.look(width, 900, scheme)
    browser.open(page)
    across = browser.run("return document.documentElement.scrollWidth")
    assert across <= width
    contrasts = browser.run(CONTRASTS)
    assert len(contrasts) > 50
    assert min(contrasts) >= 4.5
    assert browser.messages() == []


@pytest.mark.slow
def test_hostile_names_do_nothing(browser, hostile_run, page_of) -> None:
    page = page_of(hostile_run)
    browser.look(1280, 900, "light")
    browser.open(page)
    assert "broken" != browser.run("return document.title")
    assert browser.run("return document.querySelectorAll('script').length") == 2
    assert "onerror" in browser.run(TITLE)
    assert browser.messages() == []
