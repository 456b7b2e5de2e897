"""The page in a browser, where one is installed."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from keras_dml.serve.errors import Busy
from keras_dml.serve.page import read_assets
from tests.reports.browser import is_there
from tests.serve.conftest import HOSTILE, picture, serving
from tests.serve.page.live import SENT, Visitor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_there(), reason="needs chromium, chromedriver"),
]

KEYS = "#hits summary"
CONTRASTS = """
const channel = (x) => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
const light = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map((x) => channel(x / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = (x) => {
  const own = getComputedStyle(x).backgroundColor;
  return own === 'rgba(0, 0, 0, 0)' && x.parentElement
      ? ground(x.parentElement) : own;
};
return [...document.querySelectorAll('main *, header *')].filter((x) =>
    x.offsetParent && [...x.childNodes].some((y) =>
        y.nodeType === 3 && y.data.trim())).map((x) => {
  const ink = light(getComputedStyle(x).color), paper = light(ground(x));
  return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
});
"""
COLUMN = """
const column = document.getElementById('column');
column.value = arguments[0];
column.dispatchEvent(new Event('change'));
"""
FOCUSED = "const x = document.activeElement; return x.id || x.textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Visitor(tmp_path_factory.mktemp("browser") / "profile") as opened:
        opened.look(1280, 900, "light")
        yield opened


@pytest.fixture(scope="module")
def index(pictured):
    return pictured.index


@pytest.fixture(scope="module")
def live(pictured):
    with serving(pictured) as running:
        yield running


@pytest.fixture
def page(browser, live):
    """The page, freshly opened; it must not have said anything wrong."""
    browser.look(1280, 900, "light")
    browser.visit(live.url)
    browser.messages()
    yield browser
    said = [x for x in browser.messages() if "status of 40" not in x]
    assert said == []


def send(page, content: bytes, how: str, name: str = "photo.png") -> None:
    encoded = base64.b64encode(content).decode()
    page.run(SENT, encoded, name, "image/png", how)
    page.answered()


def keys(page) -> list[str]:
    return [x.removesuffix(".png") for x in page.texts(KEYS)]


def expected(index, row: int, k: int = 12, **kwargs) -> list[str]:
    return list(map(str, index.search(picture(row), k, **kwargs).keys[0]))


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_dropped_and_pasted_images_are_searched(page, index, how) -> None:
    send(page, picture(3), how)
    assert keys(page) == expected(index, 3)
    assert page.text("#status").startswith("12 images found.")
    assert page.text("#verdict").startswith("✓ Match: class 0")
    page.until(
        "return [...document.querySelectorAll('#found img')].length === 12"
        " && [...document.images].every((x) => x.naturalWidth)"
    )
    alts = page.run("return [...document.images].map((x) => x.alt)")
    assert all(alts)


def test_page_works_by_keyboard_alone(page, index, tmp_path) -> None:
    """Takes every step by Tab, Enter and typing, with visible focus."""
    (tmp_path / "photo.png").write_bytes(picture(5))
    page.run("document.activeElement.blur()")
    seen = []
    for _ in range(4):
        page.press("Tab")
        seen.append(page.run(FOCUSED))
    assert seen == ["Skip to the results", "file", "k", "column"]
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.run(outline) == "solid"
    page.run(COLUMN, "label")
    page.press("Tab")
    assert page.run(FOCUSED) == "value"
    page.type("#value", "0")
    page.choose(tmp_path / "photo.png")
    page.answered()
    assert keys(page) == expected(index, 5, where={"label": 0})
    page.type("#value", "9")  # 09, of no row.
    page.press("Enter")
    page.until(
        "return document.getElementById('status').textContent"
        ".includes('No image')"
    )
    assert keys(page) == []


@pytest.mark.parametrize("way", ["#copy button", "#hits details button"])
def test_row_can_be_left_out_and_taken_back(page, index, way) -> None:
    send(page, picture(8), "drop")
    assert "is in the gallery: class 1, 8.png." in page.text("#copy")
    assert "certainly the same" in page.text("#hits figcaption")
    page.click("#hits summary")
    page.click(way)
    page.until("return !document.getElementById('left-out').hidden")
    page.until(
        "return document.querySelector('#hits summary').textContent !== '8.png'"
    )
    page.answered()
    assert keys(page) == expected(index, 8, exclude=[8])
    assert page.text("#left-out-name") == "Left out: 8.png"
    assert page.run("return document.getElementById('copy').hidden")
    page.click("#take-back")
    page.until(
        "return document.querySelector('#hits summary').textContent === '8.png'"
    )


def test_picture_of_the_gallery_can_be_tried(page, index) -> None:
    page.until("return document.querySelectorAll('.example img').length === 6")
    page.click("#example-pictures li:nth-child(2) button")
    page.until("return !document.getElementById('found').hidden")
    page.answered()
    assert page.text("#left-out-name") == "Left out: 8.png"
    assert "8" not in keys(page)
    assert keys(page)[0] == expected(index, 8, exclude=[8])[0]
    assert page.run("return document.getElementById('examples').hidden")
    send(page, picture(3), "drop")
    assert page.run("return document.getElementById('left-out').hidden")


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (0.04, "almost certainly the same"), (0.4, "probably the same"),
        (4, "perhaps the same"), (40, "probably different"),
    ],
)  # fmt: skip
def test_confidence_is_said_in_words(browser, pictured, images, words) -> None:
    """Words follow how many images of other classes score as high."""
    negatives = np.full(10_000, -1.0)
    count = round(images / len(pictured.index) * len(negatives))
    negatives[-count:] = 2.0
    current = replace(pictured)
    vars(current)["negatives"] = negatives
    with serving(current) as running:
        browser.visit(running.url)
        send(browser, picture(8), "drop")
        captions = browser.texts("#hits figcaption")
    assert words in captions[0]
    rejected = [x for x in captions if "below the threshold" in x]
    assert rejected
    assert not [x for x in rejected if "certainly" in x or "probably the" in x]


def test_row_without_a_picture_shows_its_name(browser, current) -> None:
    with serving(current) as live:
        browser.visit(live.url)
        send(browser, picture(8), "drop")
        browser.until("return !document.querySelector('.waiting')")
        frames = browser.texts("#hits .missing")
    assert len(frames) == 12
    assert frames[0] == "class 1"


def test_page_is_inert_until_its_script_runs() -> None:
    """Before its script runs, all elements exist and are disabled."""
    page = read_assets()["index.html"][0].decode()
    assert 'class="note loading" id="served" role="status">Loading…<' in page
    assert 'id="layout" inert>' in page
    assert '<main id="app">' in page


def test_unreadable_file_shows_an_error(page) -> None:
    send(page, picture(1), "drop")
    send(page, b"no picture at all", "drop", "notes.png")
    page.until("return !document.getElementById('error').hidden")
    assert "must be an image file" in page.text("#error")
    assert page.run("return document.getElementById('found').hidden")
    send(page, picture(1), "drop")
    assert page.run("return document.getElementById('error').hidden")


def test_label_with_html_stays_text(page) -> None:
    send(page, picture(0), "drop")
    assert HOSTILE in page.text("#hits")
    assert HOSTILE in page.text("#verdict")
    assert page.run("return document.title") != "broken"
    script = "return [...document.images].filter((x) => x.src.endsWith('/x'))"
    assert page.run(script) == []


def test_page_asks_for_a_token(browser, pictured) -> None:
    with serving(pictured, token="secret") as running:
        browser.visit(running.url)
        assert browser.run("return document.getElementById('layout').hidden")
        assert browser.run(FOCUSED) == "token"
        browser.type("#token", "wrong")
        browser.press("Enter")
        browser.until("return !document.getElementById('token').validity.valid")
        browser.type("#token", "secret")
        browser.press("Enter")
        browser.until("return !document.getElementById('layout').hidden")
        send(browser, picture(2), "drop")
        assert keys(browser)[0] == "2"
        browser.until(
            "return document.querySelectorAll('#hits img').length === 12"
        )


def test_page_shows_a_new_gallery(browser, current) -> None:
    with serving(replace(current, index=None, version=0)) as running:
        browser.visit(running.url)
        assert "no gallery" in browser.text("#served")
        send(browser, picture(2), "drop")
        assert "no gallery" in browser.text("#status")
        assert browser.run("return document.getElementById('options').hidden")
        running.service.current = current
        send(browser, picture(2), "drop")
        browser.until(
            "return document.querySelectorAll('#hits li').length === 12"
        )
        browser.answered()
        assert "glyphs · gallery of 48 images" in browser.text("#served")
        assert not browser.run(
            "return document.getElementById('options').hidden"
        )


def test_busy_server_is_asked_again(browser, current, monkeypatch) -> None:
    with serving(replace(current, index=None)) as running:
        browser.visit(running.url)
        submit, tries = running.service.submit, []

        async def busy_at_first(*args, **kwargs):
            tries.append(args)
            if len(tries) < 3:
                raise Busy(retry_after=1)
            return await submit(*args, **kwargs)

        monkeypatch.setattr(running.service, "submit", busy_at_first)
        encoded = base64.b64encode(picture(2)).decode()
        browser.run(SENT, encoded, "photo.png", "image/png", "drop")
        browser.until(
            "return document.getElementById('status').textContent"
            ".includes('busy. Trying again in 1 second.')"
        )
        browser.answered()
        assert "no gallery" in browser.text("#status")
    assert len(tries) == 3


def test_missing_server_shows_an_error(browser, current) -> None:
    with serving(current) as running:
        browser.visit(running.url)
    send(browser, picture(2), "drop")
    assert "does not answer" in browser.text("#error")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_page_fits_and_has_contrast(browser, live, width, scheme) -> None:
    browser.look(width, 900, scheme)
    browser.visit(live.url)
    send(browser, picture(3), "drop")
    browser.run("for (const x of document.querySelectorAll('details')) {"
                "x.open = true; }")  # fmt: skip
    browser.run(COLUMN, "name")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    contrasts = browser.run(CONTRASTS)
    assert len(contrasts) > 50
    assert min(contrasts) >= 4.5
    small = browser.run(
        "return [...document.querySelectorAll('button, .button, input:not("
        "[type=file]), select, summary')].filter((x) => x.offsetParent)"
        ".filter((x) => x.getBoundingClientRect().height < 24)"
        ".map((x) => x.outerHTML)"
    )
    assert small == []
    levels = browser.run(
        "return [...document.querySelectorAll('h1, h2, h3, h4')]"
        ".filter((x) => x.offsetParent).map((x) => Number(x.tagName[1]))"
    )
    steps = [b - a for a, b in zip(levels, levels[1:], strict=False)]
    assert levels[0] == 1 and max(steps) <= 1
