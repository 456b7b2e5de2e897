from keras_dml.reports.html import document


def test_titles_are_text() -> None:
    page = document("</title><script>", "<p>body</p>")
    assert "<script>" not in page
    assert page.count("&lt;/title&gt;&lt;script&gt;") == 2
    assert "<p>body</p>" in page
    assert page.startswith("<!DOCTYPE html>")
