import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from witness.errors import InputError, OutputError, UsageError
from witness.formats import output_paths
from witness.storage import atomic, files


def test_write_replaces_whole_files_only(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("before")
    atomic.write(b"after", path)
    assert path.read_bytes() == b"after"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask to speak of")
def test_a_new_file_gets_the_mode_that_the_umask_allows(tmp_path, monkeypatch):
    """Without asking for the umask: that sets it for a moment, for the other threads of the process too."""
    before = os.umask(0o027)
    try:

        def umask(_: int) -> int:
            raise AssertionError("os.umask was called")

        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", umask)
            atomic.write(b"new", tmp_path / "new.txt")
            atomic.write_all([(b"1", tmp_path / "1.txt"), (b"2", tmp_path / "2.txt")])
            atomic.replace(b"kept", tmp_path / "kept.bin")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["new.txt", "1.txt", "2.txt", "kept.bin"], 0o640)


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text("before")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"out\.txt.*No space left"):
        atomic.write(b"after", path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]
    assert path.read_text() == "before"


def test_several_files_take_their_places_together_or_not_at_all(tmp_path):
    good, bad = tmp_path / "good.txt", tmp_path / "none" / "bad.txt"
    good.write_text("before")
    with pytest.raises(OutputError, match=r"bad\.txt"):
        atomic.write_all([(b"after", good), (b"after", bad)])
    assert good.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["good.txt"]
    bad.parent.mkdir()
    umask = os.umask(0o027)
    try:
        atomic.write_all([(b"%d" % number, tmp_path / f"{number}.txt") for number in range(20)])
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(umask)
    assert [(tmp_path / f"{number}.txt").read_text() for number in range(20)] == [str(n) for n in range(20)]
    assert stat.S_IMODE((tmp_path / "7.txt").stat().st_mode) == 0o640


def test_a_link_is_replaced_and_a_pipe_is_written_into(tmp_path):
    target = tmp_path / "target.txt"
    target.write_text("before")
    target.chmod(0o751)
    link, lost = tmp_path / "link.txt", tmp_path / "lost.txt"
    for write in (atomic.write, atomic.replace):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        write(b"after", link)
        assert (target.read_text(), link.is_symlink(), link.read_bytes()) == ("before", False, b"after")
        assert stat.S_IMODE(link.stat().st_mode) & 0o111 == 0  # not the mode of what it led to
    lost.symlink_to(tmp_path / "new.txt")
    atomic.write(b"after", lost)
    assert not (tmp_path / "new.txt").exists()
    device = tmp_path / "device.txt"
    device.symlink_to("/dev/full")
    atomic.write(b"after", device)  # as any link, wherever it leads
    assert device.read_bytes() == b"after"

    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    atomic.write(b"{}", pipe)
    reader.join(5)
    assert read == [b"{}"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def prepare(recording: str, formats: list[str], output: str, *, keep: bool = True) -> output_paths.Targets:
    targets = output_paths.plan(recording, formats, output)
    with output_paths.prepared(targets, keep=keep):
        return targets


def test_the_folder_of_a_plan_goes_again_if_the_work_fails(tmp_path):
    targets = output_paths.plan("a/call.wav", ["srt", "srt", "json"], f"{tmp_path}/new/deep")
    folder = tmp_path / "new" / "deep"
    assert targets == (("srt", folder / "call.srt"), ("json", folder / "call.json"))
    made = []
    with pytest.raises(InputError), output_paths.prepared(targets):
        raise InputError(str(made.append(folder.is_dir())))
    assert made == [True]
    assert not (tmp_path / "new").exists()


def test_a_folder_that_existed_stays_if_the_work_fails(tmp_path):
    (tmp_path / "kept").mkdir()
    targets = output_paths.plan("call.wav", [], f"{tmp_path}/kept")
    with pytest.raises(InputError), output_paths.prepared(targets):
        raise InputError("no recording")
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(("name", "to"), [("in.txt", "in.txt"), ("in.txt", "."), ("in.csv", "in.csv")])
def test_the_recording_is_never_written_over(tmp_path, monkeypatch, name, to):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("a recording, whatever it is called")
    with pytest.raises(UsageError, match="the recording itself"):
        output_paths.plan(name, [], to)


@pytest.mark.parametrize(
    ("formats", "to", "error"),
    [
        (["srt", "txt"], None, UsageError),
        (["srt", "txt"], "x.srt", UsageError),
        (["txt"], "x.srt", UsageError),
        ([], "", UsageError),
        ([], "/proc/x/y", OutputError),
        ([], "x" * 300 + ".txt", OutputError),
    ],
)
def test_requests_that_cannot_be_met(tmp_path, monkeypatch, formats, to, error):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        prepare("call.wav", formats, to)
    assert "\n" not in str(caught.value)


def test_one_format_twice_is_one_format(tmp_path):
    assert len(prepare("call.wav", ["json", "json"], f"{tmp_path}/x.json")) == 1


def test_a_special_file_takes_one_format():
    assert [name for name, _ in prepare("call.wav", ["srt"], os.devnull)] == ["srt"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- everything that can be in the way is found before any work ---


def test_a_long_name_leaves_room_for_the_findings(tmp_path):
    ((_, path),) = prepare("a" * 246 + ".wav", ["json"], f"{tmp_path}/out")
    for made in (path, output_paths.beside(path)):
        made.touch()
    assert path.stem.startswith("a" * 200)
    with pytest.raises(OutputError, match=r"findings\.npz: cannot be written"):
        prepare("call.wav", [], f"{tmp_path}/new/{'a' * 246}.json")
    assert not (tmp_path / "new").exists()
    for folder in ("x" * 300, "a/" * 3000):
        targets = [("json", tmp_path / folder / "s.json")]
        with pytest.raises(OutputError, match="cannot be written"), output_paths.prepared(targets):
            raise AssertionError
    # Without findings there is room for it.
    prepare("call.wav", [], f"{tmp_path}/new/{'a' * 246}.json", keep=False)


@pytest.mark.parametrize("name", ["s.json", "s.findings.npz"])
def test_a_folder_in_the_place_of_a_result(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(OutputError, match=f"{name}: is a folder"):
        prepare("s.wav", ["srt", "json"], str(tmp_path))


def test_a_link_of_the_system_is_written_into(tmp_path):
    lines = (
        "from pathlib import Path",
        "from witness.storage import atomic",
        "atomic.write(b'all', Path('/dev/stdout'))",
    )
    code = "\n".join(lines)
    with (tmp_path / "out.txt").open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ((tmp_path / "out.txt").read_bytes(), piped.stdout) == (b"all", b"all")


def test_links_that_lead_nowhere_give_way(tmp_path):
    for name, target in (
        ("loop.json", "loop.json"),
        ("gone.json", "no/such/x.json"),
        ("s.findings.npz", "s.findings.npz"),
    ):
        (tmp_path / name).symlink_to(target)
    for name in ("loop.json", "gone.json", "s.json"):
        ((_, path),) = prepare("call.wav", [], str(tmp_path / name))
        atomic.write(b"{}", path)
        assert not path.is_symlink()


def test_a_pipe_in_the_place_of_the_findings_is_not_written_into(tmp_path):
    os.mkfifo(tmp_path / "s.findings.npz")
    with pytest.raises(OutputError, match=r"s\.findings\.npz: is not a regular file"):
        prepare("s.wav", ["json"], str(tmp_path))
    os.mkfifo(tmp_path / "s.json")
    targets = [("json", tmp_path / "s.json")]
    refused = pytest.raises(OutputError, match=r"s\.json: is not a regular file")
    with refused, output_paths.prepared(targets, pipes=False):
        raise AssertionError
    assert prepare("s.wav", ["json"], str(tmp_path))  # into a pipe, without findings


def test_the_first_name_that_is_free(tmp_path, monkeypatch):
    def plan(taken: int) -> str:
        tried = []

        def is_free(paths: list[Path], recording: str) -> bool:
            tried.append((paths, recording))
            return len(tried) > taken

        monkeypatch.setattr(output_paths, "_is_free", is_free)
        ((_, path),) = output_paths.plan("in/call.m4a", ["srt"], str(tmp_path), spare=True)
        return path.name

    digest = plan(9)
    assert [plan(0), plan(1), plan(2)] == ["call.srt", "call.m4a.srt", digest]
    assert digest.startswith("call.m4a~")


# --- modes ---


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_what_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "p.txt"
    for before in (0o600, 0o640, 0o664, 0o444):
        path.touch()
        path.chmod(before)
        atomic.write(b"new", path)
        assert mode(path) == before
        atomic.replace(b"newer", path)
        assert mode(path) == before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_voices_are_private(tmp_path):
    json, voices = tmp_path / "new" / "s.json", tmp_path / "new" / "s.findings.npz"
    prepare("s.wav", ["json"], f"{tmp_path}/new")
    assert mode(json.parent) == 0o700
    atomic.write_all([(b"v", voices), (b"{}", json)], private=[voices])
    umask = os.umask(0)
    os.umask(umask)
    assert (mode(voices), mode(json)) == (0o600, 0o666 & ~umask)
    voices.chmod(0o664)  # as earlier versions wrote it; its group stays
    atomic.write(b"v", voices, private=True)
    assert mode(voices) == 0o660
    prepare("s.wav", ["json"], f"{tmp_path}/without", keep=False)
    assert mode(tmp_path / "without") == 0o777 & ~umask


# --- nothing torn, nothing waited for ---


def test_no_signal_comes_between_two_files(tmp_path, monkeypatch):
    """Its exception is raised in the main thread."""
    placing = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda *args: [placing.append(threading.current_thread()), replace(*args)][1]
    )
    atomic.write_all([(b"1", tmp_path / "1"), (b"2", tmp_path / "2")])
    assert len(placing) == 2
    assert threading.main_thread() not in placing


def test_what_is_half_written_goes_with_a_process_that_ends_at_once(tmp_path):
    atomic._Draft(b"half", tmp_path / "x.json").write()
    atomic.write(b"whole", tmp_path / "y.json")
    atomic.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["y.json"]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(tmp_path, kind):
    path = {"pipe": tmp_path / "pipe", "device": Path(os.devnull), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(OSError, match=r"regular file|directory"):
        files.read(path)
    with pytest.raises(OSError, match=r"regular file|directory"):
        files.sha256_at(path)
