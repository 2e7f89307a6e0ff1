"""Faults that a batch survives, each really injected: kill -9, full disks, crashes, clocks that jump.

WITNESS_KILLS=50 kills at so many random moments instead of a few.
"""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import av
import pytest
import soundfile

import ggml
from recordings import OPTIONS, children, gone, here, make, run, start
from witness.errors import OutputError
from witness.formats import findings
from witness.storage import atomic, files
from witness.work.manifest import Entry, Manifest

KILLS = int(os.environ.get("WITNESS_KILLS", "3"))
RECORDINGS = 6

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")


def verify(out: Path, recordings: list[Path]) -> None:
    """Every recording done exactly once, its files whole, nothing else left behind."""
    entries = [json.loads(line) for line in (out / "manifest.jsonl").read_bytes().split(b"\n") if whole(line)]
    done = [entry["source"] for entry in entries if entry["state"] == "done"]
    assert sorted(done) == sorted(map(str, recordings))
    for path in recordings:
        content = (out / f"{path.stem}.findings.npz").read_bytes()
        document = json.loads((out / f"{path.stem}.json").read_text())
        assert document["findings"]["sha256"] == files.sha256(content)
        findings.decode(content, path.stem)
    assert not list(out.rglob(f"{atomic.SCRATCH}*-*-*"))
    assert not json.loads((out / "report.json").read_text())["failed"]


def whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path):
    """Of the parent, of a worker, of whisper's process, in turn; then the same command continues."""
    whisper = ggml.write(tmp_path / "tones.bin")
    recordings = make(tmp_path / "in", RECORDINGS)
    arguments = ("in", "-o", "out", "-f", "json", "--whisper", whisper, "--jobs", 2, "--retry-failed")
    chance = random.Random(20)
    killed, process, seen = [], None, set()
    while len(killed) < KILLS:
        if process is None or process.poll() is not None:
            if process is not None:
                assert process.returncode in (0, 3), process.communicate()[1].decode()
                process.communicate()
                if process.returncode == 0:
                    verify(tmp_path / "out", recordings)
                    shutil.rmtree(tmp_path / "out")
            process = start(*arguments, cwd=tmp_path)
            pause = chance.uniform(0.05, 2.5)
        time.sleep(pause)
        workers = children(process.pid)
        whispers = [child for worker in workers for child in children(worker)]
        seen |= {*workers, *whispers}
        victims = ([process.pid], workers, whispers)[len(killed) % 3]
        pause = chance.uniform(0.02, 0.2)  # until there is one
        if not victims or process.poll() is not None:
            continue
        pause = chance.uniform(0.05, 2.5)
        victim = chance.choice(victims)
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)
        if victim == process.pid:
            process.communicate()
            assert all(gone(pid) for pid in (*workers, *whispers)), "orphans"
            process = None
    if process is not None:
        process.communicate()
    for _ in range(3):  # two kills may have hit both tries of one recording
        last = start(*arguments, cwd=tmp_path)
        _, err = last.communicate(timeout=300)
        if last.returncode == 0:
            break
    assert last.returncode == 0, err.decode()
    verify(tmp_path / "out", recordings)
    assert all(gone(pid) for pid in seen)


@pytest.mark.slow
def test_ctrl_c_finishes_nothing_half_and_says_how_to_go_on(tmp_path):
    recordings = make(tmp_path / "in", 8)
    process = start("in", "-o", "out", "-f", "json", "--whisper", "none", "--jobs", 2, cwd=tmp_path)
    while not list(tmp_path.glob("out/*.json")) and process.poll() is None:
        time.sleep(0.05)
    workers = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "are left; run the same command again to continue" in err.decode()
    assert "Traceback" not in err.decode()
    assert all(gone(pid) for pid in workers)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["done"] + report["left"] == 8
    assert report["left"]
    here("in", "-o", "out", "-f", "json", "--whisper", "none", cwd=tmp_path)
    verify(tmp_path / "out", recordings)


CRASH = """
import os, signal, sys
if "witness.work.worker" in sys.orig_argv:
    import av
    opened = av.open
    def crash(file, *args, **kwargs):
        name = os.path.basename(str(getattr(file, "name", "")))
        if "crash" in name:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in name:
            import time
            time.sleep(3600)
        return opened(file, *args, **kwargs)
    av.open = crash
"""


@pytest.mark.slow
def test_a_recording_that_crashes_the_decoder_and_one_that_hangs(tmp_path):
    first, second, *_ = make(tmp_path / "in", 4, 1.0)
    first.rename(first.with_name("crash.flac"))
    second.rename(second.with_name("hang.flac"))
    begun = time.monotonic()
    stdout, _ = run(
        *("in", "-o", "out", "--whisper", "none", "--jobs", 2, "--limit-time", 20),
        cwd=tmp_path,
        inject=CRASH,
        code=3,
    )
    assert time.monotonic() - begun < 90
    assert "4 recordings: 2 done, 2 failed" in stdout
    assert "crash.flac: the process that worked on it ended with signal SIGSEGV" in stdout
    assert "hang.flac: took longer than --limit-time 20 s" in stdout
    here("in", "-o", "out", "--whisper", "none", "--retry-failed", cwd=tmp_path)  # in a sane decoder


@pytest.mark.slow
def test_a_recording_that_takes_too_much_memory(tmp_path):
    first, _ = make(tmp_path / "in", 2, 1.0)
    first.rename(first.with_name("greedy.flac"))
    greed = "hoard = bytearray(b'x') * 1_500_000_000"
    stdout, _ = run(
        *("in", "-o", "out", "--whisper", "none", "--jobs", 1, "--limit-memory", 1.2, "--limit-time", 90),
        cwd=tmp_path,
        inject=CRASH.replace('if "hang" in name:', f'if "greedy" in name:\n            {greed}'),
        code=3,
    )
    assert "2 recordings: 1 done, 1 failed" in stdout
    assert "greedy.flac: took more memory than --limit-memory 1.2 GB; raise it" in stdout


@pytest.mark.slow
def test_a_worker_that_dies_once_costs_nothing(tmp_path):
    make(tmp_path / "in", 3, 1.0)
    once = tmp_path / "once"
    first = f"not os.path.exists({str(once)!r}) and not open({str(once)!r}, 'x').close()"
    code = CRASH.replace('if "crash" in name', f"if name == 'call01.flac' and {first}")
    stdout, err = run("in", "-o", "out", "--whisper", "none", "--jobs", 1, cwd=tmp_path, inject=code)
    assert once.exists()
    assert "3 done" in stdout
    *progress, last = err.splitlines()
    assert all("of 3 recordings" in line for line in progress)  # how far a slow machine is
    assert last.startswith("wrote 3 transcripts in out")


@pytest.mark.slow
def test_a_clock_that_jumps(tmp_path):
    """By years, back and forth, in every process, each time that anybody asks what time it is."""
    jump = (
        "import time, itertools\n"
        "now, steps = time.time, itertools.cycle([0, 1e8, -1e8, 3e7])\n"
        "time.time = lambda: now() + next(steps)\n"
        "time.time_ns = lambda: int(time.time() * 1e9)\n"
    )
    recordings = make(tmp_path / "in", 3, 1.0)
    for path, when in zip(recordings, (0, 4e9, 1.0), strict=True):
        os.utime(path, (when, when))
    arguments = ("in", "-o", "out", "-f", "json", "--whisper", "none", "--limit-time", 60, "--jobs", 1)
    run(*arguments, cwd=tmp_path, inject=jump)
    verify(tmp_path / "out", recordings)
    stdout, _ = run(*arguments, cwd=tmp_path, inject=jump)
    assert "3 done before" in stdout


def test_a_recording_that_changes_or_goes_while_it_is_read(tmp_path, monkeypatch):
    recordings = make(tmp_path / "in", 3, 1.0)
    opened = av.open

    def meddle(file, *args, **kwargs):
        container = opened(file, *args, **kwargs)
        if file.name.endswith("call00.flac"):
            with Path(file.name).open("ab") as more:
                more.write(bytes(1000))
        if file.name.endswith("call01.flac"):
            Path(file.name).unlink(missing_ok=True)
        return container

    with monkeypatch.context() as patch:
        patch.setattr(av, "open", meddle)
        stdout, _ = here("in", "-o", "out", "--whisper", "none", cwd=tmp_path, code=3)
    assert "1 done, 2 failed" in stdout
    assert "call00.flac was changed while it was read; try again with --retry-failed" in stdout
    assert "call01.flac cannot be read" in stdout
    assert sorted(path.name for path in (tmp_path / "out").glob("*.json")) == ["call02.json", "report.json"]
    make(tmp_path / "in", 2, 1.0)
    here("in", "-o", "out", "--whisper", "none", cwd=tmp_path)
    verify(tmp_path / "out", recordings)


FAILING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Reads of files called *failing* from byte FROM on end with EIO; with FAILED, until that file is there. */
ssize_t read(int fd, void *to, size_t count) {
    static ssize_t (*real)(int, void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "read");
    char link[64], name[4096];
    const char *failed = getenv("FAILED");
    long from = atol(getenv("FROM"));
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length > 0) {
        name[length] = 0;
        if (strstr(name, "failing") && lseek(fd, 0, SEEK_CUR) >= from && !(failed && !access(failed, F_OK))) {
            if (failed) close(creat(failed, 0600));
            errno = EIO;
            return -1;
        }
    }
    return real(fd, to, count);
}
"""


@pytest.fixture
def failing_disk(tmp_path):
    """The environment for programs whose reads of files called *failing* end with an error of the disk."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        pytest.skip("the disk that fails is made by gcc on Linux")
    library = tmp_path / "disk.so"
    command = ["gcc", "-shared", "-fPIC", "-o", library, "-xc", "-", "-ldl"]
    subprocess.run(command, input=FAILING.encode(), check=True)
    return {"LD_PRELOAD": str(library), "FROM": "8192"}


@pytest.mark.slow
@pytest.mark.parametrize("begin", [0, 8192, 1_000_000], ids=["beginning", "header", "middle"])
def test_a_disk_that_fails(tmp_path, failing_disk, begin):
    soundfile.write(tmp_path / "failing.wav", [0.001 * (number % 7) for number in range(1_000_000)], 16_000)
    done = subprocess.run(
        [sys.executable, "-m", "witness", "failing.wav", "--whisper", "none", *OPTIONS],
        cwd=tmp_path,
        env={**os.environ, **failing_disk, "FROM": str(begin)},
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (4, b"")
    assert done.stderr.decode() == (
        "witness: failing.wav: could not be read (Input/output error); fix: check the disk or the network "
        "drive that it is on, or copy it to another one\n"
    )


@pytest.mark.slow
def test_a_batch_tries_once_more_what_the_disk_did_not_give(tmp_path, failing_disk):
    first, second, _ = make(tmp_path / "in", 3)
    first.rename(first.with_name("failing.flac"))
    arguments = ("in", "-o", "out", "-f", "json", "--whisper", "none", "--jobs", 1)
    stdout, err = run(*arguments, cwd=tmp_path, code=3, **failing_disk)
    assert "3 recordings: 2 done, 1 failed" in stdout
    assert "failing.flac: could not be read (Input/output error); fix: check the disk" in stdout
    assert "bug" not in stdout + err
    again = {**failing_disk, "FAILED": str(tmp_path / "failed")}
    stdout, err = run(*arguments, "--retry-failed", cwd=tmp_path, **again)
    assert "once more after the others: " in err
    assert "3 recordings: 1 done, 2 done before" in stdout
    verify(tmp_path / "out", [first.with_name("failing.flac"), second, second.with_name("call02.flac")])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system here")
    yield folder
    subprocess.run([shutil.which("umount"), str(folder)], check=True)


def test_a_full_disk_in_the_middle(small_disk, tmp_path):
    recordings = make(tmp_path / "in", 6)
    (small_disk / "ballast").write_bytes(bytes(1_000_000))
    arguments = ("in", "-o", "small/out", "-f", "json", "--whisper", "none", "--jobs", 1)
    _, err = here(*arguments, cwd=tmp_path, code=1)
    assert "No space left on device" in err
    assert "run the same command again to continue" in err
    finished = list((small_disk / "out").glob("call*.json"))
    assert 0 < len(finished) < 6
    for path in finished:
        json.loads(path.read_text())
    (small_disk / "ballast").unlink()
    here(*arguments, cwd=tmp_path)
    verify(small_disk / "out", recordings)


def test_a_manifest_that_can_no_longer_be_written(small_disk):
    def entry(output: str) -> Entry:
        return Entry(output, "/in/a.wav", 1, 1, None, "s", "failed", "x" * 300)

    def fill() -> None:
        with (small_disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    manifest = Manifest(small_disk / "manifest.jsonl")
    written = [entry("first")]
    manifest.append(written[0])
    with pytest.raises(OSError, match="No space"):
        fill()

    def append() -> None:
        for number in range(100):  # the last block of the file still has room for some
            manifest.append(entry(f"a{number}"))
            written.append(entry(f"a{number}"))

    with pytest.raises(OutputError) as caught:
        append()
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert 1 < len(written) < 20
    (small_disk / "ballast").unlink()
    manifest.append(entry("after"))
    assert list(Manifest(manifest.path).entries.values()) == [*written, entry("after")]


def test_a_folder_that_cannot_be_written(tmp_path):
    make(tmp_path / "in", 1)
    out = tmp_path / "out"
    out.mkdir()
    if os.geteuid() == 0:  # who may write everywhere but into what is mounted to be read
        for command in (["mount", "--bind", out, out], ["mount", "-o", "remount,ro,bind", out]):
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("no right to mount a folder for reading only here")
    else:
        out.chmod(0o500)
    try:
        _, err = here("in", "-o", "out", "--whisper", "none", cwd=tmp_path, code=1)
    finally:
        if os.geteuid() == 0:
            subprocess.run([shutil.which("umount"), out], check=True)
        else:
            out.chmod(0o700)
    assert err.strip().count("\n") == 0
    assert "out: cannot be written" in err


@pytest.mark.slow
def test_a_home_and_a_folder_of_recordings_that_cannot_be_written(tmp_path):
    """As in a container, or on a drive of others: nothing is kept, and nothing else changes."""
    (source,) = make(tmp_path / "in", 1)
    home = tmp_path / "home"
    home.mkdir()
    places = [home, source.parent]
    environment = {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1"}
    for name in ("WITNESS_CACHE", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "witness", str(source), "-f", "json", "-o", str(tmp_path / "out.json")]
    mounted = []
    try:
        for place in places:
            if os.geteuid() == 0:
                for step in (["mount", "--bind", place, place], ["mount", "-o", "remount,ro,bind", place]):
                    if subprocess.run(step, capture_output=True, check=False).returncode:
                        pytest.skip("no right to mount a folder for reading only here")
                    if "--bind" in step:
                        mounted.append(place)
            else:
                place.chmod(0o500)
        done = subprocess.run(
            [*command, "--whisper", "none", *OPTIONS],
            env=environment,
            capture_output=True,
            timeout=100,
            check=False,
        )
    finally:
        for place in mounted:
            subprocess.run([shutil.which("umount"), place], check=True)
        for place in places:
            place.chmod(0o700)
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["audio"]["path"] == str(source)
    assert list(home.iterdir()) == []
    assert list(source.parent.iterdir()) == [source]


def test_names_that_differ_by_case_or_composition_only(tmp_path):
    (source,) = make(tmp_path / "made", 1, 1.0)
    (tmp_path / "in").mkdir()
    alike = [
        "Call.flac",
        "call.flac",
        unicodedata.normalize("NFC", "é.flac"),
        unicodedata.normalize("NFD", "é.flac"),
    ]
    for name in alike:
        shutil.copy(source, tmp_path / "in" / name)
    if len(list((tmp_path / "in").iterdir())) < 4:
        pytest.skip("this file system takes them for the same names")
    here("in", "-o", "out", "-f", "json", "--whisper", "none", cwd=tmp_path)
    made = [path.name for path in (tmp_path / "out").glob("*.json")]
    assert len({unicodedata.normalize("NFC", name).casefold() for name in made}) == 5  # and the report
    stdout, _ = here("in", "-o", "out", "-f", "json", "--whisper", "none", cwd=tmp_path)
    assert "4 done before" in stdout


@pytest.mark.slow
def test_names_that_are_no_text(tmp_path):
    (source,) = make(tmp_path / "made", 1, 1.0)
    (tmp_path / "in").mkdir()
    try:
        shutil.copy(source, os.fsencode(tmp_path / "in") + b"/\xff\n \"'.flac")
    except OSError:
        pytest.skip("this file system takes text only")
    run("in", "-o", "out", "-f", "json", "--whisper", "none", "--jobs", 1, cwd=tmp_path)
    assert (tmp_path / "out" / os.fsdecode(b"\xff\n \"'.json")).exists()
    stdout, _ = here("in", "-o", "out", "-f", "json", "--whisper", "none", cwd=tmp_path)
    assert "1 done before" in stdout


@pytest.mark.slow
def test_many_tiny_recordings(tmp_path):
    """Memory stays where it is; docs/batch.md has the time of 10,000 of them."""
    (tmp_path / "in").mkdir()
    for number in range(50):
        soundfile.write(tmp_path / "in" / f"{number:05d}.wav", [0.001 * number] * 800, 8000)
    code = (
        "import resource, sys\n"
        "if 'witness.work.worker' in sys.orig_argv:\n"
        "    import av\n"
        "    opened = av.open\n"
        "    def noting(*args, **kwargs):\n"
        f"        with open({str(tmp_path / 'peaks')!r}, 'a') as file:\n"
        "            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=file)\n"
        "        return opened(*args, **kwargs)\n"
        "    av.open = noting\n"
    )
    run("in", "-o", "out", "--whisper", "none", "--jobs", 1, cwd=tmp_path, inject=code)
    peaks = [int(peak) for peak in (tmp_path / "peaks").read_text().split()]
    assert len(peaks) == 50  # each is opened once
    assert peaks[-1] < peaks[10] + 4_000  # KiB
