"""The dialog that exports, in a real browser."""

import shutil
import zipfile

from test_page import browser as browser
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import rename, saved, until
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit


def test_options_change_the_preview_and_the_file(visit):
    page = visit().open()
    rename(page, "Speaker 1", "Ann")
    saved(page)
    page.click("#export")
    page.uncheck('.formats label:has-text("docx –") input')
    assert page.is_disabled(".export .main")
    page.check('.formats label:has-text("txt –") input')
    page.wait_for_selector('.preview:has-text("Ann: ")')
    page.select_option('.export label:has-text("Speakers") select', "anonymous")
    page.wait_for_selector('.preview:has-text("P01: ")')
    page.select_option('.export label:has-text("Times") select', "drop")
    page.wait_for_selector('.preview:not(:has-text("[00:"))')
    with page.expect_download() as download:
        page.click(".export .main")
    text = download.value.path().read_text()
    assert text.startswith("P01: ")
    assert "Ann" not in text
    page.wait_for_selector(".export", state="detached")
    page.click("#export")  # what was chosen is offered again
    assert page.is_checked('.formats label:has-text("txt –") input')
    page.keyboard.press("Escape")
    page.wait_for_selector(".export", state="detached")


def test_several_recordings_at_once(visit, desk, folder):
    shutil.copytree(folder, folder / "again")
    page = visit().page
    desk.desk.library.changed()
    until(page, page.reload, f'#rows .folder:text-is("{folder.name}")')
    page.select_option("#by-folder", f"{folder.name}/again")
    page.wait_for_selector('#facts:has-text("1 of ")')
    page.click("#export")
    page.wait_for_selector(".export[open]")
    assert page.locator('.export legend:text-is("Recordings")').count() == 0  # only one is listed
    page.keyboard.press("Escape")
    page.click("#all-again")
    page.click("#export")
    page.fill(".export [type=search]", folder.name)
    page.check('.export label:has-text("All that are shown") input')
    page.check('.formats label:has-text("srt –") input')
    assert page.inner_text(".export .main") == "Export 4 files"
    with page.expect_download() as download:
        page.click(".export .main")
    assert download.value.suggested_filename == "transcripts.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        expected = [f"{place}toned.{form}" for place in ("again/", "") for form in ("docx", "srt")]
        assert sorted(archive.namelist()) == [f"{folder.name}/{name}" for name in expected]
