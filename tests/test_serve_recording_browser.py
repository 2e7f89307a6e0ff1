"""Recording in a real browser, whose microphone is a double that beeps."""

import av
import numpy as np
import pytest

from test_page import chromium
from test_serve_browser import Visitor, until
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from witness.audio import decode
from witness.schema import SAMPLE_RATE
from witness.serve import browser_recordings


@pytest.fixture(scope="module")
def beeping():
    """A browser that has a microphone."""
    with chromium("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream") as started:
        yield started


def start(page, name: str) -> None:
    page.click("#record")
    page.fill("#recording-name", name)
    page.click("#recording-begin")
    page.wait_for_selector("#recording-end:not([hidden])")


def test_from_the_microphone_to_the_queue(beeping, desk, folder):
    visitor = Visitor(beeping, desk, folder)
    page = visitor.page
    start(page, "My talk")
    page.keyboard.press("Escape")  # ends no recording
    page.wait_for_selector('#recording-time:has-text("00:00:05")')
    page.click("#recording-end")
    page.wait_for_selector("#recording", state="hidden")
    path = desk.desk.folder / "My talk.webm"
    samples = np.concatenate(list(decode.blocks(str(path))))
    assert 4.0 < len(samples) / SAMPLE_RATE < 9.0
    assert np.abs(samples).max() > 0.01  # the beeps
    with av.open(path) as container:
        assert container.streams.audio[0].channels == 1
    page.wait_for_selector("#job-list .name:text-is('My talk'), #rows :text('My talk')")
    assert not visitor.complaints
    visitor.context.close()


def test_a_tab_that_is_closed_costs_its_last_seconds(beeping, desk, folder, monkeypatch):
    monkeypatch.setattr(browser_recordings, "IDLE", 1.0)
    visitor = Visitor(beeping, desk, folder)
    page = visitor.page
    start(page, "Left behind")
    page.wait_for_selector('#recording-time:has-text("00:00:05")')
    page.close()
    (take,) = browser_recordings.unfinished(desk.desk.folder)
    assert take.size > 1000
    page = visitor.tab()
    page.goto(desk.url)
    until(page, page.reload, '#take-list li:has-text("Left behind.webm")')
    page.click('#take-list button:text-is("Transcribe")')
    page.wait_for_selector("#takes", state="hidden")
    samples = np.concatenate(list(decode.blocks(str(desk.desk.folder / "Left behind.webm"))))
    assert len(samples) / SAMPLE_RATE > 1.5
    assert not visitor.complaints
    visitor.context.close()


def test_a_microphone_and_a_shared_tab_are_two_channels(beeping, desk, folder):
    visitor = Visitor(beeping, desk, folder)
    page = visitor.page
    # Headless browsers share nothing: a tone stands for the tab's sound.
    page.evaluate("""() => {
        navigator.mediaDevices.getDisplayMedia = async () => {
            const context = new AudioContext(), tone = context.createOscillator();
            const out = context.createMediaStreamDestination();
            tone.frequency.value = 3000;
            tone.connect(out);
            tone.start();
            return out.stream;
        };
    }""")
    page.click("#record")
    page.check("#recording-shared")
    page.fill("#recording-name", "Two")
    page.click("#recording-begin")
    page.wait_for_selector('#recording-time:has-text("00:00:04")')
    page.click("#recording-end")
    page.wait_for_selector("#recording", state="hidden")
    path = desk.desk.folder / "Two.webm"
    with av.open(path) as container:
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
        assert container.streams.audio[0].channels == 2
    heard = np.concatenate(frames, axis=1)[:, -96_000:]
    pitch = np.argmax(np.abs(np.fft.rfft(heard[1]))) / 2.0
    assert abs(pitch - 3000) < 5
    tone = np.abs(np.fft.rfft(heard, axis=1))[:, 5990:6011].max(axis=1)
    assert tone[0] < tone[1] / 30  # whoever sits here is heard alone
    assert not visitor.complaints
    visitor.context.close()


def test_a_microphone_that_is_unplugged_ends_the_recording(beeping, desk, folder):
    visitor = Visitor(beeping, desk, folder)
    page = visitor.page
    page.evaluate("""() => {
        const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (wanted) => (globalThis.heard = await ask(wanted));
    }""")
    start(page, "Unplugged")
    page.wait_for_selector('#recording-time:has-text("00:00:03")')
    page.evaluate("heard.getTracks()[0].dispatchEvent(new Event('ended'))")
    page.wait_for_selector('#recording-state:has-text("The microphone or the shared tab is gone")')
    shown = page.inner_text("#recording-time")
    page.wait_for_timeout(1500)
    assert page.inner_text("#recording-time") == shown
    page.click("#recording-end")
    page.wait_for_selector("#recording", state="hidden")
    assert (desk.desk.folder / "Unplugged.webm").stat().st_size > 1000
    visitor.context.close()


def test_a_recording_that_another_person_discards_is_offered_for_download(beeping, desk, folder, tmp_path):
    """A piece of which the server has a part goes on where that ends."""
    visitor = Visitor(beeping, desk, folder)
    page = visitor.page
    start(page, "Taken")
    (take,) = browser_recordings.unfinished(desk.desk.folder)
    sound = desk.desk.folder / browser_recordings.PLACE / take.id / "sound"
    sound.write_bytes(b"\x1a\x45")  # a part of the first piece
    until_size = "document.querySelector('#recording-time').textContent >= '● 00:00:07'"
    while not page.evaluate(until_size):
        page.wait_for_timeout(200)
    assert sound.stat().st_size > 1000
    assert sound.read_bytes().count(b"\x1a\x45\xdf\xa3") == 1
    origin = desk.url.rstrip("/")
    answer = visitor.context.request.post(f"{origin}/api/takes/{take.id}/discard", headers={"Origin": origin})
    assert answer.ok
    page.wait_for_selector('#recording-state:has-text("no such recording anymore")')
    page.click("#recording-end")
    page.wait_for_selector("#recording-begin:not([hidden])")
    with page.expect_download() as download:
        page.click('#recording-state button:text-is("Download the recording")')
    download.value.save_as(tmp_path / "kept.webm")
    samples = np.concatenate(list(decode.blocks(str(tmp_path / "kept.webm"))))
    assert len(samples) / SAMPLE_RATE > 4.0
    visitor.context.close()


def test_a_browser_that_may_not_listen_is_told_why(beeping, desk, folder):
    visitor = Visitor(beeping, desk, folder)
    page = visitor.page
    page.evaluate("""() => {
        navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("", "NotAllowedError"));
    }""")
    page.click("#record")
    page.click("#recording-begin")
    page.wait_for_selector('#recording-state:has-text("The browser was not allowed to listen")')
    assert browser_recordings.unfinished(desk.desk.folder) == []
    visitor.context.close()
