"""Writing over several paragraphs, in a real browser."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

import delicate
import talks
from test_page import browser as browser
from test_page import case as case
from test_page import encoded_once as encoded_once
from test_page import heard as heard
from test_page import read as read
from test_page import redo
from witness.schema import Turn, Utterance
from witness.transcript import store

HERE = """() => [document.activeElement.id || document.activeElement.className, getSelection().toString()]"""


@pytest.fixture
def writer(read):
    """The call, to be written in."""
    reader = read(talks.call(), permissions=["clipboard-read", "clipboard-write"])
    reader.page.click("#write")
    return reader


def word(page, paragraph: int, place: int):
    return page.locator("article.p").nth(paragraph).locator(".w").nth(place)


def drag(page, first, last, shift: bool = False) -> None:
    """Select from before one word to before another."""
    boxes = [one.bounding_box() for one in (first, last)]
    (x, y), (to_x, to_y) = [(box["x"] + 1, box["y"] + box["height"] / 2) for box in boxes]
    page.mouse.click(x, y)
    if shift:
        page.keyboard.down("Shift")
        page.mouse.click(to_x, to_y)
        page.keyboard.up("Shift")
        return
    page.wait_for_timeout(600)  # or it is a double click
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(to_x, to_y, steps=8)
    page.mouse.up()


def settled(reader) -> None:
    """A moment after the last key it is a step."""
    reader.until("document.querySelector('article[hidden]') === null")
    reader.page.wait_for_timeout(1200)


@pytest.mark.parametrize("way", ["forward", "backward", "shift"])
def test_what_is_typed_over_several_paragraphs_is_one_step(writer, way):
    page, before = writer.page, writer.said()
    ends = [word(page, 0, 2), word(page, 3, 1)]
    drag(page, *(ends[::-1] if way == "backward" else ends), shift=way == "shift")
    assert page.evaluate(HERE)[0] == "feed"
    page.keyboard.type("it is me")
    assert page.locator(".said:focus").inner_text() == "Good morning, it is me"
    settled(writer)
    after = writer.said()
    rest = before[3][1].removeprefix("and ")
    assert after == [(before[0][0], "Good morning, it is me"), (before[3][0], rest), *before[4:]]
    page.keyboard.type(", Laura")  # the caret is still there
    settled(writer)
    assert writer.said()[0][1] == "Good morning, it is me, Laura"
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert writer.said() == before
    page.keyboard.press("Control+Shift+z")
    assert writer.said() == after


def test_the_keyboard_alone_selects_cuts_and_pastes_over_paragraphs(writer):
    page, before = writer.page, writer.said()
    word(page, 0, 1).click()
    page.keyboard.press("Home")
    while page.evaluate(HERE)[0] != "feed":
        page.keyboard.press("Shift+ArrowRight")
    for _ in range(5):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Control+c")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{before[0][1]}\n\nHello"
    page.keyboard.press("Control+x")
    settled(writer)
    assert writer.said()[0] == (before[1][0], before[1][1].removeprefix("Hello"))
    page.keyboard.press("Control+z")
    assert writer.said() == before
    word(page, 2, 0).click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowUp")  # and back: nothing is selected
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Control+v")
    settled(writer)
    assert copied.replace("\n\n", " ") in writer.said()[1][1]
    page.keyboard.press("Control+z")
    assert writer.said() == before


def test_delete_joins_what_one_person_says_and_enter_parts_it_also_after_redo(read, case):
    reader = read(case / "toned.html")
    page, before = reader.page, reader.said()
    page.click("#write")
    long = next(n for n, (_, text) in enumerate(before) if len(text.split()) > 6)
    who, text = before[long]
    words = text.split()
    word(page, long, 3).click()
    page.keyboard.press("Enter")
    drag(page, word(page, long, 2), word(page, long + 1, 1))
    page.keyboard.press("Delete")
    settled(reader)
    assert reader.said()[long] == (who, " ".join([*words[:2], *words[5:]]))
    page.keyboard.press("Control+z")
    drag(page, word(page, long, 2), word(page, long + 1, 1))
    page.keyboard.press("Enter")
    shown = reader.said()
    assert [text for _, text in shown[long : long + 2]] == [" ".join(words[:2]), " ".join(words[5:])]
    page.keyboard.type("So ")  # at the beginning of the new one
    settled(reader)
    shown = reader.said()
    assert shown[long + 1] == (who, " ".join(["So", *words[5:]]))
    file = case / "c.json"
    reader.save(file)
    kinds = [entry["kind"] for entry in json.loads(file.read_text())["corrections"]]
    assert kinds == ["split", "text", "split", "text"]
    redo(case / "toned.json", "--corrections", file, "-f", "html", "-q")
    assert read(case / "toned.html").said() == shown


def test_no_key_is_dead_while_paragraphs_are_selected(writer):
    page, before = writer.page, writer.said()
    field = "getSelection().anchorNode.parentElement.closest('article').dataset.paragraph"

    def select() -> None:
        drag(page, word(page, 1, 1), word(page, 3, 1))
        assert page.evaluate(HERE)[0] == "feed"

    for key, paragraph, at in (
        ("ArrowLeft", "1", 7),
        ("ArrowUp", "1", 7),
        ("ArrowRight", "3", 4),
        ("ArrowDown", "3", 4),
        ("Home", "3", 0),
        ("End", "3", len(before[3][1])),
    ):
        select()
        page.keyboard.press(key)
        writer.until("document.activeElement.matches('.said')")
        assert page.evaluate(field) == paragraph, key
        caret = """() => {
            const range = document.createRange(), { focusNode, focusOffset } = getSelection();
            range.selectNodeContents(document.activeElement);
            range.setEnd(focusNode, focusOffset);
            return range.toString().length;
        }"""
        assert page.evaluate(caret) == at, key
    select()
    page.keyboard.press("Escape")
    page.wait_for_selector("#play.pause")
    page.keyboard.press("Tab")
    page.wait_for_selector("#play:not(.pause)")
    page.keyboard.press("Control+a")  # all of these paragraphs
    assert page.evaluate("getSelection().toString()").startswith(before[1][1].split()[0])
    page.keyboard.press("Alt+Digit1")
    assert writer.said()[0] == ("Speaker 1", " ".join(text for _, text in before[:5]))
    page.keyboard.press("Control+z")
    select()
    page.keyboard.press("F2")
    assert page.locator("html.writing").count() == 0
    assert page.locator("#feed[contenteditable]").count() == 0
    assert writer.said() == before


@pytest.mark.parametrize(
    "keys", ["Backspace", "Control+Backspace", "Delete", "Control+Delete", "Shift+Backspace"]
)
def test_every_key_that_deletes_joins_two_paragraphs(writer, keys):
    page, before = writer.page, writer.said()
    word(page, 3 if "Back" in keys else 2, 0).click()
    page.keyboard.press("Home" if "Back" in keys else "End")
    page.keyboard.press(keys)
    assert writer.said()[2] == (before[2][0], f"{before[2][1]} {before[3][1]}")
    page.keyboard.press("Control+z")
    assert writer.said() == before


def test_what_is_between_two_paragraphs_alone_and_everything(writer):
    page, before = writer.page, writer.said()
    word(page, 3, 0).click()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Backspace")  # as without Shift: the words go to whoever speaks above
    assert writer.said()[2] == (before[2][0], f"{before[2][1]} {before[3][1]}")
    page.keyboard.press("Control+z")
    word(page, 0, 0).click()
    page.keyboard.press("Home")
    for _ in range(40):
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+End")
    page.keyboard.press("Delete")
    settled(writer)
    assert [text for _, text in writer.said() if text] == []
    page.keyboard.press("Control+z")
    assert writer.said() == before


def test_a_composed_letter_takes_the_place_of_several_paragraphs(writer):
    page = writer.page
    drag(page, word(page, 0, 2), word(page, 1, 2))
    session = page.context.new_cdp_session(page)
    session.send("Input.imeSetComposition", {"selectionStart": 1, "selectionEnd": 1, "text": "に"})
    session.send("Input.imeSetComposition", {"selectionStart": 2, "selectionEnd": 2, "text": "日本"})
    session.send("Input.insertText", {"text": "日本"})
    settled(writer)
    said = [text for _, text in writer.said()[:2]]
    assert said == ["Good morning, 日本", "internet has been down since last night,"]


def test_a_selection_over_far_more_than_the_window_shows(read):
    reader = read(talks.long(9000, 1.0))
    page, before = reader.page, reader.said()
    page.click("#write")
    word(page, 0, 1).click()
    page.keyboard.press("Home")
    for _ in range(100):
        page.keyboard.press("Shift+PageDown")
        page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
        )  # nobody is faster
        if page.evaluate("getSelection().toString()").count("\n\n\n") > 60:
            break
    else:
        pytest.fail("the selection does not go on")
    page.keyboard.type("gone")
    settled(reader)
    after = reader.said()
    assert len(after) < len(before) - 10
    assert after[0][1].startswith("gone")
    assert after[-5:] == before[-5:]
    page.keyboard.press("Control+z")
    assert reader.said() == before


def test_doubtful_words_are_heard_by_themselves_one_key_each(read):
    found = talks.call()
    words = found.words
    told = [
        replace(one, words=tuple(structs.replace(word, probability=0.95) for word in one.words))
        for one in found.utterances
    ]
    doubtful = [words.index(found.utterances[n].words[1]) for n in (0, 4)]
    for n in (0, 4):
        first, second, *rest = told[n].words
        told[n] = replace(told[n], words=(first, structs.replace(second, probability=0.3), *rest))
    reader = read(replace(found, utterances=tuple(told)))
    page = reader.page
    page.click("#write")
    word(page, 0, 0).click()
    page.evaluate("""() => {
        globalThis.heard = [];
        const note = () => heard.push(document.getElementById("play").className.includes("pause"));
        new MutationObserver(note).observe(document.getElementById("play"), { attributes: true });
    }""")
    for n in doubtful:
        page.evaluate("heard.length = 0")
        page.keyboard.press("F8")
        assert page.evaluate(HERE) == ["said", words[n].text.strip()]
        reader.until("heard.includes(true) && !heard.at(-1)")  # it is played, and stops by itself
        assert words[n].end < reader.seconds() + 1 < words[n].end + 2.5  # the clock has whole seconds
    page.keyboard.press("F8")
    page.keyboard.type("surely")
    page.keyboard.press("F8")  # one is left
    assert page.inner_text("#doubtful") == "1 of 1 doubtful"
    page.keyboard.press("Shift+F8")
    assert page.inner_text("#doubtful") == "1 of 1 doubtful"


def test_one_key_stops_at_the_word_just_heard(read):
    reader = read(talks.call())
    page = reader.page
    words = [one.text.strip() for one in talks.call().words]
    place = """() => {
        const node = getSelection().anchorNode;
        return Number((node instanceof Element ? node : node.parentElement).closest("[data-w]").dataset.w);
    }"""
    word(page, 4, 0).click()  # and it plays
    page.wait_for_selector("#play.pause")
    page.wait_for_timeout(700)
    page.keyboard.press("F9")  # begins to write, too
    page.wait_for_selector("#play:not(.pause)")
    first = page.evaluate(place)
    heard = page.evaluate("document.querySelector('.w.playing')?.dataset.w")
    assert page.evaluate(HERE) == ["said", words[first]]
    if heard is not None:
        assert 0 <= int(heard) - first <= 4
    page.keyboard.press("F9")
    assert page.evaluate(place) == first - 1
    page.keyboard.press("Shift+F9")
    page.keyboard.press("Shift+F9")
    assert page.evaluate(place) == first + 1
    page.keyboard.type("Zanzibar")
    page.keyboard.press("Tab")  # and on
    page.wait_for_selector("#play.pause")
    page.keyboard.press("Tab")
    settled(reader)
    page.keyboard.press("F9")
    page.keyboard.press("F2")
    assert "Zanzibar" in " ".join(text for _, text in reader.said())


def pull(page, place, target, *, side: float = 0.0) -> None:
    """Drag what is selected at a place to the beginning of another one, or with `side` 1 to its end."""
    (box, to) = (one.bounding_box() for one in (place, target))
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 9, box["y"] + box["height"] / 2 + 5)
    page.mouse.move(to["x"] + 1 + side * (to["width"] - 2), to["y"] + to["height"] / 2, steps=5)
    page.mouse.up()


def choose(page, paragraph: int, first: int, count: int, back: bool = False) -> None:
    """Select some words of a paragraph, with the caret at their end or with `back` at their beginning."""
    word(page, paragraph, first).click()
    page.evaluate(
        """([paragraph, first, last, back]) => {
            const words = document.querySelectorAll("article.p")[paragraph].querySelectorAll(".w");
            const end = words[last].firstChild, ends = [[words[first].firstChild, 0], [end, end.length]];
            getSelection().setBaseAndExtent(...(back ? ends.reverse() : ends).flat());
        }""",
        [paragraph, first, first + count - 1, back],
    )
    page.wait_for_timeout(600)  # or the next press is a double click


@pytest.mark.parametrize(("source", "target"), [(3, 0), (0, 3), (0, 1), (3, 3)])
@pytest.mark.parametrize("side", [0.0, 1.0])
def test_dragged_words_arrive_and_are_one_step(writer, source, target, side):
    page, before = writer.page, writer.said()
    words = [text.split() for _, text in before]
    choose(page, source, 0, 2, back=side == 1.0)
    place = len(words[target]) - 1 if side or source == target else 1
    pull(page, word(page, source, 0), word(page, target, place), side=side)
    settled(writer)
    moved = words[source][:2]
    at = place + int(side)
    expected = [list(some) for some in words]
    expected[target] = [*words[target][:at], *moved, *words[target][at:]]
    expected[source] = expected[source][2:]
    if source == target:
        expected[target] = [*words[source][2:at], *moved, *words[source][at:]]
    after = [text.split() for _, text in writer.said()]
    assert after == expected
    page.keyboard.press("Control+z")
    assert writer.said() == before


def test_words_dragged_out_of_the_text_stay_there_too(writer):
    page, before = writer.page, writer.said()
    page.keyboard.press("Control+f")
    choose(page, 3, 0, 1)
    pull(page, word(page, 3, 0), page.locator("#query"))
    settled(writer)
    assert page.input_value("#query").strip() == before[3][1].split()[0]
    assert writer.said() == before
    word(page, 3, 0).click()
    page.keyboard.press("Home")
    page.evaluate("""() => {
        const data = new DataTransfer(), at = document.querySelectorAll("article.p")[3].querySelector(".w");
        data.setData("text/plain", "from\\nelsewhere");
        const { x, y, height } = at.getBoundingClientRect();
        const clientX = x + 1, clientY = y + height / 2;
        at.dispatchEvent(new DragEvent("drop", {
            dataTransfer: data, clientX, clientY, bubbles: true, cancelable: true,
        }));
    }""")
    settled(writer)
    assert writer.said()[3][1] == f"from elsewhere {before[3][1]}"


@pytest.fixture
def delicate_talk():
    """Two people say the words of all scripts, each in a paragraph."""
    text = " ".join(["first", *delicate.WORDS, "last"])
    words = [*talks.spread(text, "SPEAKER_01", 0.0, 9.0), *talks.spread(text, "SPEAKER_02", 9.5, 18.5)]
    return talks.transcript(words, [Turn(0.0, 9.0, "SPEAKER_01"), Turn(9.5, 18.5, "SPEAKER_02")])


@pytest.mark.parametrize("edit", ["type", "paste", "delete", "split", "join", "drag", "across", "ime"])
def test_no_edit_changes_a_word_of_any_script_that_it_does_not_touch(read, tmp_path, delicate_talk, edit):
    reader = read(delicate_talk, permissions=["clipboard-read", "clipboard-write"])
    store.save(delicate_talk, [("json", tmp_path / "call.json")])
    page, family = reader.page, delicate.WORDS[9]
    page.click("#write")
    word(page, 0, 0).click()
    page.keyboard.press("Control+End")
    first, second = (["first", *delicate.WORDS, "last"] for _ in range(2))
    if edit == "type":
        page.keyboard.type(" abc")
        first.append("abc")
    elif edit == "paste":
        page.evaluate("text => navigator.clipboard.writeText(text)", f" {family}\u0007 a\u2028b")
        page.keyboard.press("Control+v")
        first += [family, "a", "b"]
    elif edit == "delete":
        for _ in range(5):
            page.keyboard.press("Backspace")
        word(page, 0, 0).click()
        page.keyboard.press("Home")
        for _ in range(6):
            page.keyboard.press("Delete")
        first = first[1:-1]
    elif edit == "split":
        word(page, 0, 2).click()
        page.keyboard.press("Enter")
        page.keyboard.type("abc")
    elif edit == "join":
        page.keyboard.press("Delete")
    elif edit == "drag":
        choose(page, 0, 0, 1)
        pull(page, word(page, 0, 0), word(page, 1, len(second) - 1))
        second.insert(-1, first.pop(0))
    elif edit == "across":
        drag(page, word(page, 0, len(first) - 1), word(page, 1, 4))
        page.keyboard.type("abc")
        first[-1:], second[:4] = ["abc"], []
    else:
        session = page.context.new_cdp_session(page)
        session.send("Input.imeSetComposition", {"selectionStart": 1, "selectionEnd": 1, "text": "に"})
        session.send("Input.insertText", {"text": "日本"})
        first[-1] += "日本"
    settled(reader)
    shown = [text for _, text in reader.said()]
    assert (
        " ".join(shown).replace("abc", "").split() == " ".join([*first, *second]).replace("abc", "").split()
    )
    assert "\u0007" not in " ".join(shown)
    reader.save(tmp_path / "c.json")
    redo(tmp_path / "call.json", "--corrections", tmp_path / "c.json", "-f", "json,txt,html", "-q")
    texts = "".join(entry.text for entry in store.read(tmp_path / "call.json").words).split()
    assert texts == " ".join(shown).split()
    assert [text for _, text in read(tmp_path / "call.html").said()] == shown


def test_what_is_typed_where_no_word_was_becomes_a_step_while_one_types_on(read):
    found = talks.call()
    unheard = Utterance(26.0, 28.5, "SPEAKER_01")
    reader = read(
        replace(found, utterances=tuple(sorted([*found.utterances, unheard], key=lambda u: u.start)))
    )
    page = reader.page
    page.click("#write")
    passage = page.locator("article", has=page.locator(".inaudible")).first
    passage.locator(".inaudible").dblclick()
    key = "Object.keys(localStorage).find((key) => key.startsWith('witness-draft/'))"
    kept = f"JSON.parse(localStorage[{key}]).steps"
    page.keyboard.type("one")
    assert page.evaluate(kept)[-1][0]["text"] == "one"  # at once
    for n in range(60):
        page.keyboard.type(f" k{n}")
        page.wait_for_timeout(100)
        if page.locator(".w.fixed").count():
            break
    else:
        pytest.fail("it is no step while the person types on")
    page.keyboard.type(" more")
    settled(reader)
    expected = " ".join(["one", *(f"k{each}" for each in range(n + 1)), "more"])
    assert expected in " ".join(text for _, text in reader.said())


def test_typing_over_most_of_a_paragraph_keeps_it_together_with_its_time(read, tmp_path):
    words = [f"word{n}" for n in range(20)]
    spoken = talks.spread(" ".join(words), "SPEAKER_00", 0.0, 30.0)
    found = talks.transcript(spoken, [Turn(0.0, 30.0, "SPEAKER_00")])
    store.save(found, [("json", tmp_path / "call.json")])
    reader = read(found)
    page = reader.page
    page.click("#write")
    choose(page, 0, 2, 10)
    page.keyboard.type("zzz")
    settled(reader)
    choose(page, 0, 4, 6)
    page.keyboard.press("Delete")
    settled(reader)
    expected = [*words[:2], "zzz", words[12], words[-1]]
    assert [text.split() for _, text in reader.said()] == [expected]
    reader.save(tmp_path / "c.json")
    redo(tmp_path / "call.json", "--corrections", tmp_path / "c.json", "-f", "json,html", "-q")
    assert [text.split() for _, text in read(tmp_path / "call.html").said()] == [expected]
    said = next(word for word in store.read(tmp_path / "call.json").words if word.text.strip() == "zzz")
    assert (said.start, said.end) == (spoken[2].start, spoken[11].end)
