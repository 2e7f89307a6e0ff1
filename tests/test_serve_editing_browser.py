"""Correcting on the desk in a real browser, beside other windows and across reloads."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile

import pytest

from axe import faults
from test_page import browser as browser
from test_serve_browser import COMMENTER, arrived, correct, held_back, rename, saved, until
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from witness.formats import reading
from witness.storage import files
from witness.transcript import edits, store

NOTED = {"kind": "note", "pieces": [[0, 9000]], "text": "", "codes": ["Elsewhere"]}


def texts(folder) -> list[str]:
    return [word.text.strip() for word in store.read(folder / "toned.json").words]


def test_undo_beside_a_second_window_opens_no_question(visit, folder):
    """What one undoes while the other goes on is gone, and what the other did stays."""
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    before = texts(folder)
    correct(one, one.locator(".w").nth(3), "Zanzibar")
    other.wait_for_selector('.w:text-is("Zanzibar")')
    saved(one)
    waiting = held_back(one, "**/corrections")
    one.keyboard.press("Control+z")
    arrived(one, waiting)
    rename(other, "Speaker 1", "Ann")
    saved(other)
    waiting[0].continue_()
    one.wait_for_selector('aside button.name:text-is("Ann")')
    saved(one)
    assert one.locator("dialog[open]").count() == 0
    assert texts(folder) == before
    assert store.read(folder / "toned.json").speakers[0].name == "Ann"
    visitor.forgive("409")


def test_a_word_that_two_people_correct_is_named(visit, folder):
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    waiting = held_back(one, "**/corrections")
    correct(one, one.locator(".w").nth(3), "Zanzibar")
    arrived(one, waiting)
    correct(other, other.locator(".w").nth(3), "Timbuktu")
    saved(other)
    waiting[0].continue_()
    one.wait_for_selector('#toast:has-text("wrote “Timbuktu” where you wrote “Zanzibar”")')
    other.wait_for_selector('#toast:has-text("wrote “Zanzibar” where you wrote “Timbuktu”")')
    saved(one)
    assert texts(folder)[3] == "Zanzibar"
    one.keyboard.press("Control+z")
    saved(one)
    assert texts(folder)[3] == "Timbuktu"
    visitor.forgive("409")


def test_what_is_undone_at_once_after_a_reload_stays_undone(visit, folder):
    """Although what the page had sent before arrives only then."""
    visitor = visit()
    page = visitor.open()
    before = texts(folder)
    rename(page, "Speaker 1", "Ann")
    saved(page)
    sent = []

    def lost(route) -> None:
        sent.append(json.loads(route.request.post_data))
        route.abort()

    page.route("**/corrections", lost)
    page.locator(".w").nth(3).dblclick()
    page.keyboard.insert_text("Zanzibar")
    arrived(page, sent)
    page.reload()
    page.wait_for_selector('.w:text-is("Zanzibar")')
    page.unroute("**/corrections")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    address = page.url.partition("#")[0]
    answer = visitor.context.request.put(
        f"{address}corrections", data=sent[0], headers={"Origin": visitor.desk.url.rstrip("/")}
    )
    assert answer.status in (200, 409)  # or the page was faster
    page.wait_for_timeout(1500)
    saved(page)
    assert page.locator("dialog[open]").count() == 0
    assert texts(folder) == before
    assert store.read(folder / "toned.json").speakers[0].name is None
    visitor.forgive("Failed to load resource")


def test_a_word_that_is_chosen_stays_chosen_while_what_was_typed_before_becomes_a_step(visit, folder):
    """A quick double click chooses it before the elements are made anew."""
    page = visit().open()
    page.click("#write")
    page.locator(".w").nth(3).dblclick()
    page.keyboard.insert_text("Zanzibar")
    page.locator(".w").nth(2).evaluate(
        """word => {
          const range = document.createRange(), node = word.firstChild, text = node.textContent;
          range.setStart(node, text.length - text.trimStart().length);
          range.setEnd(node, text.length);
          getSelection().removeAllRanges();
          getSelection().addRange(range);
        }"""
    )
    saved(page)
    page.keyboard.insert_text("Timbuktu")
    saved(page)
    assert texts(folder)[2:4] == ["Timbuktu", "Zanzibar"]


def test_words_outside_of_what_is_typed_over_keep_times_and_speakers(visit, folder):
    page = visit().open()
    before = store.read(folder / "toned.json").words
    page.click("#write")
    fields = page.locator(".said[contenteditable]")
    first, last = (int(fields.nth(n).locator(".w").nth(1).get_attribute("data-w")) for n in (0, 2))
    assert before[first].speaker != before[last].speaker or last - first > 3
    page.locator(f'[data-w="{first}"]').click()
    page.keyboard.press("Control+ArrowLeft")
    while page.evaluate("getSelection().focusNode.parentElement.closest('[data-w]')?.dataset.w") != str(last):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowLeft")
    assert faults(page) == []
    page.keyboard.type("Q ")  # like none of them: it is said where the first one was
    saved(page)
    after = store.read(folder / "toned.json").words

    def placed(words) -> list[tuple[str, float, float, str | None]]:
        return [(word.text, word.start, word.end, word.speaker) for word in words]

    assert placed(after[:first]) == placed(before[:first])
    kept = placed(before[last:])
    assert placed(after[-len(kept) :]) == kept
    assert len(after) == first + 1 + len(kept)
    assert after[first].text.strip() == "Q"
    assert (after[first].start, after[first].speaker) == (before[first].start, before[first].speaker)
    page.keyboard.press("Control+z")
    saved(page)
    assert texts(folder) == [word.text.strip() for word in before]


def test_how_far_one_has_got_is_seen_in_the_list_and_in_another_window(visit, folder):
    visitor = visit()
    page, other = visitor.open(), visitor.open(visitor.tab())
    page.click("#write")
    page.locator(".said").nth(1).click()
    page.keyboard.press("Alt+KeyU")
    page.wait_for_selector("#until:visible")
    saved(page)
    far = store.read(folder / "toned.json").review.until
    assert far > 0
    words = store.read(folder / "toned.json").words
    assert far in [word.end for word in words]  # the word with the caret
    other.wait_for_selector(f'#until:has-text("{page.inner_text("#until")}")')
    listed = visitor.tab()
    listed.goto(visitor.desk.url)
    row = f'#rows tr:has-text("{folder.name}")'
    until(listed, listed.reload, f'{row}:has(.tag:text-is("in progress")):has-text("up to 00:00")')
    other.click("#checked")
    saved(other)
    page.wait_for_selector('#checked[aria-pressed="true"]')
    until(listed, listed.reload, f'{row}:has(.tag:text-is("checked"))')
    page.keyboard.press("Control+z")  # takes back no state
    assert store.read(folder / "toned.json").state == "checked"


def test_doubtful_words_and_unsure_speakers_are_counted_and_reached_by_keys(visit, folder):
    document = json.loads((folder / "toned.json").read_text())
    for place, word in enumerate(document["words"]):
        word["probability"] = 0.3 if place in (2, 5, 9) else 0.95
        word["speaker_confidence"] = 0.4 if place == 3 else 0.9
    (folder / "toned.json").write_text(json.dumps(document))
    (folder / "toned.findings.npz").unlink()  # or the words would be made of them again
    page = visit().open()
    assert page.inner_text("#doubtful") == "3 doubtful"
    assert page.inner_text("#unsure") == "1 unsure whose"
    page.keyboard.press("d")
    page.keyboard.press("d")
    assert page.inner_text("#doubtful") == "2 of 3 doubtful"
    page.keyboard.press("Enter")  # the word is selected: what is typed takes its place
    page.keyboard.type("surely")
    page.keyboard.press("Alt+KeyD")
    assert page.inner_text("#doubtful") == "2 of 2 doubtful"
    page.keyboard.type("certainly")
    page.keyboard.press("Alt+KeyS")
    assert page.inner_text("#unsure") == "1 of 1 unsure whose"
    saved(page)
    said = texts(folder)
    assert (said[5], said[9]) == ("surely", "certainly")


def test_a_word_is_corrected_everywhere_by_one_key(visit, folder):
    page = visit().open()
    before = texts(folder)
    common = max(set(before), key=before.count)
    places = [place for place, text in enumerate(before) if text == common]
    assert len(places) > 1
    page.locator(".w").nth(places[0]).dblclick()
    page.keyboard.type("Nguyen")
    page.keyboard.press("Alt+KeyE")
    page.wait_for_selector(f'#toast:has-text("Corrected in {len(places) - 1} other")')
    saved(page)
    wanted = ["Nguyen" if text == common else text for text in before]
    assert texts(folder) == wanted
    page.keyboard.press("Control+z")
    saved(page)
    assert [text for text in texts(folder) if text == "Nguyen"] == ["Nguyen"]


def test_a_pedal_plays_while_it_is_held(visit):
    page = visit().open()
    page.keyboard.press("?")
    page.click("#own-open")
    page.click('#own-list li:has-text("Play while it is held") button')
    page.keyboard.press("Enter")
    page.wait_for_selector('#own-about:has-text("needed for writing")')
    page.keyboard.press("F9")
    page.wait_for_selector('#own-list button:text-is("F9")')
    page.click("#own-keys .main")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    page.click("#write")
    page.locator(".said").nth(1).click()
    page.keyboard.down("F9")
    page.wait_for_selector("#play.pause")
    page.keyboard.down("F9")  # the key repeats
    page.keyboard.up("F9")
    page.wait_for_selector("#play:not(.pause)")


def test_whoever_clicks_elsewhere_while_something_is_typed_writes_there(visit):
    page = visit().open()
    page.click("#write")
    page.locator(".said").nth(1).click()
    page.keyboard.press("End")
    page.keyboard.type(" first")
    page.locator(".said").nth(3).click()
    page.keyboard.press("End")
    page.keyboard.type(" second")
    saved(page)
    said = [text for text in page.locator(".said").all_inner_texts() if text]
    assert said[1].endswith(" first")
    assert said[3].endswith(" second")


def test_who_may_comment_adds_notes_and_nothing_else(visit, folder):
    owner, eve = visit().open(), visit(token=COMMENTER.token).open()
    assert "commented, and exported, not corrected" in eve.locator("#refusal").inner_text()
    before = texts(folder)
    eve.locator(".w").nth(2).click()
    eve.keyboard.press("a")
    eve.fill("#note-text", "Why?")
    eve.click("#noting .main")
    saved(eve)
    assert [one.text for one in reading.noted_passages(store.read(folder / "toned.json"))] == ["Why?"]
    owner.wait_for_selector("#notes .note")
    eve.keyboard.press("Control+z")
    eve.locator(".w").nth(2).click()
    eve.keyboard.press("e")
    eve.wait_for_selector('#toast:has-text("you may comment here")')
    eve.reload()
    eve.wait_for_selector("#notes .note")
    owner.locator("#feed").click()
    owner.keyboard.press("Control+z")
    saved(owner)
    assert (reading.noted_passages(store.read(folder / "toned.json")), texts(folder)) == ([], before)


def test_a_note_is_written_found_again_changed_and_undone(visit, desk, folder):
    other = folder / "other" / "toned.json"
    shutil.copytree(folder, other.parent)
    edits.add_notes(other, files.sha256_at(other), [[NOTED]])
    desk.desk.library.update()
    page = visit().open()
    page.locator(".w").nth(2).click()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("a")
    page.fill("#note-text", "Why?\nReally?")
    page.fill("#note-codes", "Trust, <b>Money</b>")
    page.click("#noting .main")
    saved(page)
    (found,) = reading.noted_passages(store.read(folder / "toned.json"))
    assert (found.text, found.codes) == ("Why?\nReally?", ("Trust", "<b>Money</b>"))
    assert len(found.quote.split()) == 3
    page.reload()
    page.wait_for_selector("#notes .code >> nth=1")
    page.keyboard.press("a")
    page.wait_for_selector('#all-codes option[value="Elsewhere"]', state="attached")
    page.keyboard.press("Escape")
    assert page.locator("#notes .code").all_inner_texts() == ["Trust", "<b>Money</b>"]
    assert page.locator("#feed .noted").count() == 3
    page.click("#notes .note")
    assert page.locator("#feed .chosen").count() == 3
    page.click("#notes button:has-text('Edit')")
    page.fill("#note-codes", "")
    page.click("#noting .main")
    page.locator(".w").nth(8).click()
    page.keyboard.press("h")
    saved(page)
    assert [one.codes for one in reading.noted_passages(store.read(folder / "toned.json"))] == [(), ()]
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.wait_for_selector("#notes .code >> nth=1")
    saved(page)
    assert reading.noted_passages(store.read(folder / "toned.json")) == [found]
    page.click("#export")
    page.uncheck('.formats label:has-text("docx –") input')
    page.check('.formats label:has-text("qdpx –") input')
    with page.expect_download() as download:
        page.click(".export .main")
    with zipfile.ZipFile(download.value.path()) as archive:
        assert b"Trust" in archive.read("project.qde")


def test_start_and_end_of_a_paragraph_are_moved_by_keys(visit, folder):
    page = visit().open()
    before = [(one.start, one.end) for one in store.read(folder / "toned.json").utterances]

    def spans() -> list[tuple[float, float]]:
        saved(page)
        return [(one.start, one.end) for one in store.read(folder / "toned.json").utterances]

    assert page.locator(".edge:visible").count() == 0
    page.locator(".w").first.click()
    page.keyboard.press("t")
    page.wait_for_selector(".edge.start:focus")
    assert faults(page) == []
    label = page.get_attribute(".edge.start", "aria-label")
    assert label == "Start of what Speaker 1 says"
    for key in ("Shift+ArrowLeft", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    start = before[0][0]
    wanted = round(max(0.0, start - 1) + 0.2, 3)
    assert float(page.get_attribute(".edge.start", "aria-valuenow")) == pytest.approx(wanted, abs=0.006)
    page.keyboard.press("Tab")
    page.wait_for_selector(".edge.end:focus")
    assert float(page.get_attribute("#timeline", "aria-valuenow")) == pytest.approx(before[0][1], abs=0.51)
    page.keyboard.press("Space")  # hear what comes after it
    page.wait_for_selector("#play.pause")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    assert page.locator(".edge:visible").count() == 0
    found = spans()
    assert found[0] == (pytest.approx(wanted), pytest.approx(before[0][1] - 0.1))
    assert found[1:] == before[1:]
    words = store.read(folder / "toned.json").words
    assert words[0].start == start  # words keep their times
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    page.locator(".w").first.click()
    page.keyboard.press("t")
    assert float(page.get_attribute(".edge.start", "aria-valuenow")) == pytest.approx(wanted, abs=0.006)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Control+z")  # what was not a step yet, too
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert spans() == before
    page.wait_for_selector(".edge.start:focus")  # it stays where one works
    page.keyboard.press("End")  # not beyond what the same person, or the next one, says
    most = float(page.get_attribute(".edge.start", "aria-valuemax"))
    page.keyboard.press("Shift+ArrowRight")
    assert float(page.get_attribute(".edge.start", "aria-valuenow")) == most
    assert most < min(before[0][1], before[1][0])


def test_start_and_end_of_a_paragraph_are_dragged(visit, folder):
    page = visit().open()
    before = [(one.start, one.end) for one in store.read(folder / "toned.json").utterances]
    page.locator("button.who").nth(1).click()
    page.click('dialog button:has-text("start and end on the timeline")')
    page.wait_for_selector(".edge.start:focus")
    box = page.locator(".edge.end").bounding_box()
    x, y = box["x"] + 10, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 30, y, steps=4)
    shown = page.inner_text("#hint")
    page.mouse.up()
    saved(page)
    found = [(one.start, one.end) for one in store.read(folder / "toned.json").utterances]
    assert found[0] == before[0]
    assert found[1][0] == before[1][0]
    assert before[1][0] < found[1][1] < before[1][1]
    assert shown.startswith(f"00:00:{found[1][1]:05.2f}")
    page.mouse.move(x - 30, y)
    page.mouse.down()
    page.mouse.move(x - 3000, y, steps=4)
    page.mouse.up()
    saved(page)
    (start, end) = next((one.start, one.end) for one in store.read(folder / "toned.json").utterances[1:])
    assert end == pytest.approx(start + 0.1)
    page.click("#undo")
    page.click("#undo")
    saved(page)
    assert [(one.start, one.end) for one in store.read(folder / "toned.json").utterances] == before


def test_who_may_only_read_moves_nothing(visit):
    page = visit(token=COMMENTER.token).open()
    page.locator(".w").first.click()
    page.keyboard.press("t")
    page.wait_for_selector('#toast:has-text("you may comment here")')
    assert page.locator(".edge:visible").count() == 0


ROUNDS = int(os.environ.get("WITNESS_ROUNDS", "8"))
"""Rounds of two people who write in one paragraph; the whole campaign has 1,000."""


def test_two_people_who_write_in_one_paragraph_lose_no_word(visit, folder):
    visitor = visit()
    pages = [visitor.open(), visitor.open(visitor.tab())]
    before = texts(folder)
    for n, page in enumerate(pages):
        page.click("#write")
        place = page.locator(".said").nth(0).locator(".w").nth(1 + 2 * n)
        place.click()
        place.evaluate("word => getSelection().collapse(word.firstChild, word.firstChild.length)")
    rng, written = random.Random(ROUNDS), []
    for round_ in range(ROUNDS):
        keys = [list(f" {name}{round_}x ") for name in "ab"]
        written += ["".join(word).strip() for word in keys]
        for n, page in enumerate(pages):
            if rng.random() < 0.3:
                page.keyboard.press(rng.choice(["Control+ArrowLeft", "Control+ArrowRight", "End", "Home"]))
                if rng.random() < 0.5:
                    page.wait_for_timeout(rng.choice([0, 400, 1300]))
            if rng.random() < 0.1:
                page.keyboard.press("Control+s")
            assert page.locator(".said:focus").count(), n
        while any(keys):
            n = rng.choice([n for n in (0, 1) if keys[n]])
            pages[n].keyboard.type(keys[n].pop(0))
            if rng.random() < 0.05:
                pages[n].wait_for_timeout(rng.choice([0, 300, 1100, 2000]))
    for page in pages * 2:
        page.wait_for_timeout(1500)
        page.bring_to_front()
        saved(page)
    for page in pages:
        shown = " ".join(page.locator(".said").all_inner_texts()).split()
        assert [word for word in written if word not in shown] == [], " ".join(shown)
    final = " ".join(texts(folder)).split()
    assert [word for word in written if word not in final] == []
    assert [word for word in " ".join(before).split() if word not in final] == []
    visitor.forgive("409")


def test_what_is_typed_without_a_pause_is_saved_and_kept(visit, folder):
    """It is a step within 5 s, and a draft at once, also in the middle of a word and where no word was."""
    visitor = visit()
    page = visitor.open()
    page.click("#write")
    page.locator(".said").nth(0).click()
    page.keyboard.press("End")
    typed_words = []
    for n in range(60):
        page.keyboard.type(f" k{n}")
        typed_words.append(f"k{n}")
        page.wait_for_timeout(100)
        if "k5" in " ".join(texts(folder)):
            break
    else:
        pytest.fail("nothing was saved while the person typed on")
    page.route("**/corrections", lambda route: route.abort())
    page.keyboard.type(" lastword")
    other = visitor.tab()  # the first one ends as in a crash: with no event
    other.goto(visitor.desk.url)
    draft = other.evaluate("Object.entries(localStorage).filter(([key]) => key.startsWith('witness-draft/'))")
    assert [text for _, text in draft if "lastword" in text]
    page.unroute("**/corrections")
    saved(page)
    assert [word for word in [*typed_words, "lastword"] if word not in " ".join(texts(folder)).split()] == []
    visitor.forgive("ERR_FAILED")


def test_the_page_says_that_it_saves_only_while_it_saves(visit):
    page = visit().open()
    waiting = held_back(page, "**/corrections")
    page.click("#write")
    page.locator(".said").nth(0).click()
    page.keyboard.press("End")
    page.keyboard.type(" abc")
    assert page.inner_text("#save") == "Not saved yet"
    arrived(page, waiting)
    assert page.inner_text("#save") == "Saving…"
    waiting[0].continue_()
    saved(page)
