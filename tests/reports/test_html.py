import base64
import hashlib
import re

from keras_dml.reports.html import document


def test_title_is_escaped_and_the_page_fits_any_screen() -> None:
    page = document("</title><script>", "<p>$body</p>")
    assert "<script>" not in page
    assert page.count("&lt;/title&gt;&lt;script&gt;") == 1
    assert "<p>$body</p>" in page
    assert page.startswith("<!doctype html>")
    assert 'content="width=device-width, initial-scale=1"' in page
    assert "prefers-color-scheme: dark" in page


def test_policy_allows_only_the_own_script() -> None:
    policy = r'Content-Security-Policy" content="([^"]*)"'
    (directives,) = re.findall(policy, document("A page", ""))
    assert directives.startswith("default-src 'none';")
    assert "script-src" not in directives
    page = document("A page", "", "const é = 1;\n")
    (directives,) = re.findall(policy, page)
    (script,) = re.findall('<script type="module">(.*)</script>', page, re.S)
    digest = hashlib.sha256(script.encode()).digest()
    allowed = base64.b64encode(digest).decode()
    assert f"script-src 'sha256-{allowed}'" in directives
