"""`--from` and `--to`: the part gives what a file cut there gives, at the times of the whole recording."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
import soundfile
from msgspec import structs

import ggml
from conftest import CALL, in_process
from recordings import OPTIONS, make
from test_audio import noisy, tracks, write
from witness import Options, diarize, transcribe
from witness.audio import decode, ffmpeg, sound
from witness.cli.options import moment
from witness.errors import InputError, UsageError
from witness.formats import findings, html, writers
from witness.formats import json_document as shape
from witness.formats.registry import Format
from witness.options import Channels, PageAudio, Part, Runtime
from witness.progress import Reporter
from witness.schema import SAMPLE_RATE, Transcript, Word
from witness.transcript import assemble, corrections, rebuild, store
from witness.work import folder
from witness.work.produce import Settings

pytestmark = pytest.mark.usefixtures("open_models")

OFFLINE = {"models": "builtin", "offline": True}
START, END = 20.0, 44.5


# --- what is asked for ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90.25", 90.25), ("1:30", 90), ("90:00", 5400), ("0:01:30.5", 90.5), ("10:00:00", 36000)],
)
def test_times_as_people_write_them(text, seconds):
    assert moment(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "1:60", "1:60:00", "-5", "1:2:3:4", "1,5", "nan", "inf", "1:"])
def test_what_is_not_a_time(text):
    with pytest.raises(click.BadParameter, match="is not a time"):
        moment(text)


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (-1, None), (float("nan"), None), (0, 0)])
def test_no_part(start, end):
    with pytest.raises(UsageError, match="is not a part of a recording"):
        Options(start=start, end=end)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--from", "1:00", "--to", "0:30"], 2, "not a part"),
        (["--from", "later"], 2, "'later' is not a time"),
        (["--from", "5:00"], 4, "call.flac: lasts 00:01:00.7 and has nothing from 00:05:00.0 on; fix:"),
    ],
)
def test_a_part_that_is_not_there_is_one_line(tmp_path, args, code, said):
    result = in_process(tmp_path, CALL, *args, "--whisper", "none", "--models", "builtin", "--offline", "-q")
    assert result.returncode == code
    assert result.stdout == b""
    assert said in result.stderr.decode().splitlines()[-1]


def test_a_batch_is_done_again_for_another_part():
    def hashed(**asked) -> str:
        return folder.fingerprint(Settings(Options(**asked), Runtime(), {}))

    assert len({hashed(), hashed(start=5), hashed(end=9), hashed(start=5, end=9)}) == 4


# --- decoding ---


LOSSLESS = [
    ("wav", "pcm_s16le"),
    ("flac", "flac"),
    ("aiff", "pcm_s16be"),
    ("mov", "pcm_s24le"),
]
LOSSY = [("mp3", "mp3"), ("m4a", "aac"), ("webm", "libopus"), ("ogg", "libopus")]


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize(("kind", "codec"), LOSSLESS)
@pytest.mark.parametrize("part", [Part(0, 3.21), Part(1.2345, 7.5), Part(7.001), Part(8.5, 99)], ids=str)
def test_a_part_is_what_a_file_cut_there_holds(tmp_path, kind, codec, rate, part):
    samples = noisy(9.3, rate)
    path = write(tmp_path / f"whole.{kind}", samples, rate, codec)
    first, last = (round(min(time, 9.3) * rate + 0.498) for time in (part.start, part.end))
    cut = write(tmp_path / f"cut.{kind}", samples[first:last], rate, codec)
    heard = decode.load(path, part=part)
    assert np.array_equal(tracks(heard), tracks(decode.load(cut)))
    assert heard.source.part == Part(part.start, part.start + len(heard.samples[0]) / SAMPLE_RATE)
    assert heard.source.duration == pytest.approx(9.3, abs=2e-3)
    assert heard.source.sha256 == decode.load(path).source.sha256
    assert heard.warnings == ()


@pytest.mark.parametrize(("kind", "codec"), LOSSY)
def test_a_part_of_a_lossy_file_is_that_of_the_whole(tmp_path, kind, codec):
    path = write(tmp_path / f"whole.{kind}", noisy(9.3, 48000), 48000, codec)
    whole = decode.load(path)
    for part in (Part(0, 2.5), Part(3.0, 7.0), Part(6.0)):
        heard = decode.load(path, part=part)
        assert heard.warnings == ()
        assert heard.source.duration == pytest.approx(whole.source.duration, abs=0.05)
        first = round(part.start * SAMPLE_RATE)
        samples = whole.samples[0][first : first + len(heard.samples[0])]
        edge = 200  # samples that the resampler makes up beyond the ends
        assert np.allclose(heard.samples[0][edge:-edge], samples[edge:-edge], atol=1e-4)
        assert part.duration == float("inf") or len(samples) == round(part.duration * SAMPLE_RATE)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "codec"), [("wav", "pcm_s16le"), ("flac", "flac"), ("aiff", "pcm_s16be")])
def test_what_comes_before_the_part_is_not_read_where_a_jump_is_exact(tmp_path, kind, codec):
    class Counting(io.BytesIO):
        count = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.count += len(data)
            return data

    path = write(tmp_path / f"long.{kind}", noisy(400, 16000), 16000, codec)
    file = Counting(Path(path).read_bytes())
    with ffmpeg.opened(file, "long") as media:
        assert sum(len(block) for _, block in media.frames(Part(350, 352))) == 2 * 16000
        assert media.duration() == pytest.approx(400, abs=1e-3)
    assert file.count < len(file.getvalue()) / 2


def test_a_cut_file_is_read_from_its_beginning_where_a_jump_fails(tmp_path):
    path = Path(write(tmp_path / "a.flac", noisy(60, 16000), 16000, "flac"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"lasts 00:00:(29|30)\.\d and has nothing from 00:00:40\.0 on"):
        decode.load(str(path), part=Part(40))


def test_places_in_messages_are_those_of_the_recording(tmp_path):
    samples = np.zeros(16000 * 9, np.float32)
    samples[16000 * 7] = np.nan
    for recording in ((samples, 16000), str(tmp_path / "a.wav")):
        if isinstance(recording, str):
            soundfile.write(recording, samples, 16000, subtype="FLOAT")
        with pytest.raises(InputError, match=r"the sample at 00:00:07\.0"):
            decode.load(recording, part=Part(5, 8))
        assert len(decode.load(recording, part=Part(1, 6.5)).samples[0]) == 5.5 * SAMPLE_RATE


def test_a_part_of_samples():
    samples, rate = soundfile.read(CALL, dtype="float32")
    heard = decode.load((samples, rate), part=Part(START, END))
    first, last = round(START * rate), round(END * rate)
    assert np.array_equal(tracks(heard), tracks(decode.load((samples[first:last], rate))))
    assert heard.source.duration == len(samples) / rate
    assert heard.source.sha256 == decode.load((samples, rate)).source.sha256
    with pytest.raises(InputError, match="nothing from"):
        decode.load((samples, rate), part=Part(61))


def test_progress_of_a_part_rises_to_its_end(tmp_path):
    path = write(tmp_path / "a.mp3", noisy(60, 16000), 16000, "mp3")
    told: list[tuple[str, float, float]] = []
    decode.load(path, part=Part(45, 57), reporter=Reporter(lambda *said: told.append(said)))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert len(told) > 2  # also before the part
    assert told[-1] == ("decode", 57, 57)


# --- all stages ---


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[Transcript, Transcript]:
    """The part of a recording, and a file that was cut there; with words."""
    folder = tmp_path_factory.mktemp("part")
    samples, rate = soundfile.read(CALL, dtype="float32")
    samples += 0.2 * ggml.tone(ggml.LOW, np.arange(len(samples)) / rate)
    soundfile.write(folder / "talk.wav", samples, rate)
    (folder / "cut").mkdir()
    soundfile.write(folder / "cut" / "talk.wav", samples[round(START * rate) : round(END * rate)], rate)
    options = Options(whisper=str(ggml.write(folder / "tones.bin")), speakers=2, **OFFLINE)
    part = transcribe(folder / "talk.wav", replace(options, start=START, end=END))
    return part, transcribe(folder / "cut" / "talk.wav", options)


def copied(item, **times):
    return (structs.replace if isinstance(item, Word) else replace)(item, **times)


def shifted(transcript: Transcript) -> Transcript:
    """As if the recording had begun START seconds earlier; milliseconds are all that is compared."""
    audio = replace(transcript.audio, duration=START + transcript.audio.duration)

    def moved(item):
        return copied(item, start=round(item.start + START, 3), end=round(item.end + START, 3))

    utterances = tuple(
        replace(moved(one), words=tuple(map(moved, one.words))) for one in transcript.utterances
    )
    return replace(
        transcript,
        audio=audio,
        turns=tuple(map(moved, transcript.turns)),
        words=tuple(map(moved, transcript.words)),
        utterances=utterances,
    )


def in_milliseconds(transcript: Transcript) -> Transcript:
    def rounded(item):
        return copied(item, start=round(item.start, 3), end=round(item.end, 3))

    utterances = tuple(
        replace(rounded(one), words=tuple(map(rounded, one.words))) for one in transcript.utterances
    )
    return replace(
        transcript,
        turns=tuple(map(rounded, transcript.turns)),
        words=tuple(map(rounded, transcript.words)),
        utterances=utterances,
    )


@pytest.mark.slow
def test_a_part_has_the_turns_and_words_of_a_file_cut_there(pair):
    part, cut = (in_milliseconds(pair[0]), shifted(pair[1]))
    assert len(part.words) > 5
    assert len(part.turns) > 3
    assert part.turns == cut.turns
    assert part.words == cut.words
    assert part.utterances == cut.utterances
    assert [(one.id, round(one.seconds, 6)) for one in part.speakers] == [
        (one.id, round(one.seconds, 6)) for one in cut.speakers
    ]
    assert part.counts == cut.counts
    assert part.audio.part == Part(START, END)
    assert part.audio.duration == pytest.approx(soundfile.info(CALL).duration, abs=1e-3)


def test_warnings_name_the_times_of_the_recording(pair):
    for part, cut in zip(pair[0].warnings, pair[1].warnings, strict=True):
        assert part == cut or "00:00:2" in part or "00:00:3" in part or "00:00:4" in part
    assert any(line.startswith("[inaudible]") for line in pair[1].warnings) == any(
        line.startswith("[inaudible]") for line in pair[0].warnings
    )


@pytest.mark.parametrize("form", [Format.TXT, Format.SRT, Format.VTT, Format.RTTM, Format.CSV])
def test_every_format_has_the_times_of_the_recording(pair, form):
    assert writers.render(in_milliseconds(pair[0]), form) == writers.render(shifted(pair[1]), form)


def test_json_and_md_say_which_part_it_is(pair):
    document = json.loads(writers.content(pair[0], "json"))
    assert document["audio"]["part"] == {"start": START, "end": END}
    assert document["audio"]["duration"] == pytest.approx(60.69, abs=1e-3)
    expected = json.loads(writers.content(shifted(pair[1]), "json"))
    assert expected["audio"]["part"] is None
    for key in ("turns", "words", "utterances", "speakers"):
        assert document[key] == expected[key], key
    assert "00:00:20 to 00:00:44 of 00:01:00" in writers.render(pair[0], Format.MD)


def test_redo_of_a_part(pair, tmp_path):
    part = pair[0]
    assert findings.decode(findings.encode(part.findings), "kept").audio == part.audio
    path = tmp_path / "talk.json"
    store.save(part, [(Format.JSON, path)])
    before = path.read_bytes()
    saved = rebuild.read(path)
    again = rebuild.rebuild(saved)
    with store.opened(path) as there:
        there.write(shape.in_milliseconds(again), saved.link)
    assert json.loads(path.read_bytes()) | {"timing": None} == json.loads(before) | {"timing": None}
    # A correction is in times of the recording.
    speaker = next(word for word in part.words if word.speaker).speaker
    given = rebuild.name_speaker(saved, f"{speaker}=Anna")
    assert all(START <= start < end <= END for start, end in given.speaker)
    named = rebuild.rebuild(saved, [given])
    assert named.name(speaker) == "Anna"
    word = part.words[2]
    text = replace(given, kind="text", speaker=(), name=None, other=((word.start, word.end),), text="yes")
    spelled = corrections.apply(assemble.make_draft(part.findings, part.asked), [text])
    assert spelled.words[2].text.strip() == "yes"


def test_the_page_shows_and_plays_the_part(pair, tmp_path):
    part = pair[0]
    files = [("html", tmp_path / "talk.html")]
    heard = sound.take(part.audio, files, PageAudio.EMBED)
    assert len(heard.peaks) == round((END - START) * sound.PEAKS)
    (tmp_path / "part.webm").write_bytes(heard.opus)
    assert decode.load(str(tmp_path / "part.webm")).source.duration == pytest.approx(END - START, abs=0.05)
    text = html.transcript_page(part, "talk", heard)
    assert '"start":20000,"end":44500' in text
    assert "00:00:20 to 00:00:44 of 1 min 1 s" in text


def test_what_the_recognizer_says_names_the_times_of_the_recording(tmp_path):
    """Its model repeats itself, so a line says where."""
    loop = [b" no" * 12]
    whisper = ggml.write(tmp_path / "loop.bin", low=loop, high=loop)
    samples, rate = soundfile.read(CALL, dtype="float32")
    samples = np.concatenate([np.zeros(rate * 70, np.float32), samples[: rate * 4]])
    found = transcribe((samples, rate), Options(whisper=str(whisper), start=70, **OFFLINE))
    (line,) = [line for line in found.warnings if "repeats itself" in line]
    assert line.startswith("1:10 to 1:14: the text repeats itself, even when it is heard again")


@pytest.mark.slow
def test_a_batch_takes_the_same_part_of_every_recording(tmp_path):
    make(tmp_path / "in", 2)
    soundfile.write(tmp_path / "in" / "short.wav", np.zeros(8000), 8000)

    def batch(*args: str, code: int) -> str:
        usual = ["batch", "in", "-o", "out", "--jobs", "1", "--whisper", "none", *OPTIONS, "-q"]
        result = in_process(tmp_path, *usual, *args)
        assert result.returncode == code, result.stderr
        return result.stdout.decode()

    said = batch("--from", "2", "--to", "3.5", code=3)
    assert "short.wav: lasts 00:00:01.0 and has nothing from 00:00:02.0 on; fix:" in said
    assert "3 recordings: 2 done, 1 failed; 0.00 h" in said
    document = json.loads((tmp_path / "out" / "call00.json").read_text())
    assert document["audio"]["part"] == {"start": 2, "end": 3.5}
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["audio_seconds"] == 3.0
    assert "2 done before" in batch("--from", "2", "--to", "3.5", code=3)
    assert "2 done, 1 failed" in batch("--from", "2", "--to", "3", code=3)


def test_the_sides_of_a_call_in_a_part(tmp_path):
    """Each channel is a track of the part, and they are swapped in the middle of the recording."""
    samples, rate = soundfile.read(CALL, dtype="float32")
    both = np.stack([samples, np.zeros_like(samples)], axis=1)
    both[len(both) // 2 :] = both[len(both) // 2 :, ::-1]
    soundfile.write(tmp_path / "both.wav", both, rate)
    cut = both[24 * rate : 36 * rate]
    soundfile.write(tmp_path / "cut.wav", cut, rate)
    part = diarize(tmp_path / "both.wav", Options(start=24, end=36, channels=Channels.SPLIT, **OFFLINE))
    whole = diarize(tmp_path / "cut.wav", Options(channels=Channels.SPLIT, **OFFLINE))
    assert len(part.turns) == len(whole.turns) > 2
    for one, other in zip(part.turns, whole.turns, strict=True):
        assert one.speaker == other.speaker
        assert one.start - 24 == pytest.approx(other.start, abs=1e-6)
