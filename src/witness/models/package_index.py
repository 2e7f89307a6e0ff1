"""Where pip would look for a package, and the wheels that it would find there.

pip itself is asked for its settings; without it, the variables that it obeys (PIP_INDEX_URL ...) count, and
otherwise the public index. Keyrings are not asked.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

from witness.child import HOME
from witness.models.download import SCHEMES, Answer, FetchError, Route, page
from witness.storage import decode
from witness.storage.files import read

PUBLIC = "https://pypi.org/simple"
JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
LARGEST_PAGE = 16 << 20
"""Bytes. The pages of packages with thousands of files have a few MB."""
SECONDS = 30.0
"""In which pip has to tell its settings; half a second is usual."""
SECTIONS = ("global", "install", "download", ":env:")
"""Of pip's settings; what comes later counts."""


@dataclass(frozen=True)
class IndexPlace:
    """Where packages lie."""

    url: str
    """http, https or file; without a password."""
    index: bool
    """An index has a page a package; otherwise this is the page or the folder, as --find-links has it."""


@dataclass(frozen=True)
class PipSettings:
    """Where and how pip looks for packages."""

    places: tuple[IndexPlace, ...]
    """The nearest first."""
    route: Route


# --- pip's settings ---


def settings() -> PipSettings:
    """The settings of the pip that belongs to this Python, or else of the environment."""
    told = _asked() if find_spec("pip") else None
    return understood(_of_environment() if told is None else told)


def _asked() -> dict[str, str] | None:
    """What `pip config list` says; None if it cannot be asked."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(
            command, capture_output=True, cwd=HOME, timeout=SECONDS, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        match = re.fullmatch(r"(:env:|\w+)\.([\w-]+)=(.*)", line)
        if match and match[1] in found:
            try:
                found[match[1]][match[2]] = str(ast.literal_eval(match[3]))
            except (ValueError, SyntaxError):
                continue
    return {name: value for section in found.values() for name, value in section.items()}


def _of_environment() -> dict[str, str]:
    """What the variables say that pip obeys."""
    return {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith("PIP_") and value
    }


def understood(told: Mapping[str, str]) -> PipSettings:
    """Settings by pip's names (`index-url`, ...) as places and a route."""
    passwords: dict[str, str] = {}

    def place(url: str, index: bool) -> IndexPlace:
        return IndexPlace(_without_password(_as_url(url), passwords), index)

    places = [place(url, False) for url in told.get("find-links", "").split()]
    if told.get("no-index", "").lower() not in ("1", "true", "yes", "y", "on", "t"):
        indexes = [told.get("index-url", PUBLIC), *told.get("extra-index-url", "").split()]
        places += [place(url, True) for url in indexes]
    route = Route(
        "pip's index-url",
        proxy=told.get("proxy") or None,
        certificates=told.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or None,
        client=told.get("client-cert") or None,
        trusted=frozenset(told.get("trusted-host", "").split()),
        passwords={**_netrc(places), **passwords},
    )
    return PipSettings(tuple(dict.fromkeys(places)), route)


def _as_url(place: str) -> str:
    """A path as a URL; a URL as it is."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|file:", place):
        return place
    return Path(place).expanduser().absolute().as_uri()


def _without_password(url: str, passwords: dict[str, str]) -> str:
    """The URL without its user and password, which are put into `passwords`, by host."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        name, _, password = user.partition(":")
        passwords[host] = f"{unquote(name)}:{unquote(password)}"
    return urlunsplit(parts._replace(netloc=host))


def _netrc(places: list[IndexPlace]) -> dict[str, str]:
    """The passwords of the places in the user's .netrc, by host; as for pip, a damaged file has none."""
    import netrc

    path = Path(os.environ.get("NETRC") or Path("~/.netrc").expanduser())
    try:
        known = netrc.netrc(str(path))
    except (OSError, netrc.NetrcParseError):
        return {}
    hosts = {urlsplit(place.url).hostname or "" for place in places} - {""}
    found = {host: known.hosts.get(host) for host in hosts}
    return {host: f"{entry[0]}:{entry[2] or ''}" for host, entry in found.items() if entry}


# --- wheels ---


@dataclass(frozen=True)
class _IndexFile:
    filename: str
    url: str


@dataclass(frozen=True)
class _Page:
    """PEP 691, as much as is needed."""

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


def wheel(place: IndexPlace, package: str, version: str, route: Route) -> str | None:
    """The URL of a wheel of this version, http, https or file: the first by name. None: there is none.

    Raises:
        NetworkError: the server is dead.
        FetchError: it answers with something else than a list of files, or a folder cannot be read.
    """
    url = place.url
    if place.index:
        url = f"{url.rstrip('/')}/{re.sub('[-_.]+', '-', package).lower()}/"
    if url.startswith("file:"):
        path = Path(url2pathname(urlsplit(url).path))
        try:
            links = _local_links(path)
        except OSError as error:
            raise FetchError(f"cannot read {path} ({error.strerror or error})") from error
    elif not place.index and urlsplit(url).path.endswith(".whl"):
        links = [url]
    else:
        links = [link for link in _links(page(url, ACCEPT, LARGEST_PAGE, route)) if link.startswith(SCHEMES)]
    wanted = re.compile(rf"{re.escape(package)}-{re.escape(version)}(-[^/]+)?-[^-/]+-[^-/]+-[^-/]+\.whl")
    named = {unquote(urlsplit(link).path.rpartition("/")[2]): link for link in reversed(links)}
    return next((named[name] for name in sorted(named) if wanted.fullmatch(name)), None)


def _local_links(path: Path) -> list[str]:
    """What a folder has, or a page in it or at `path` lists."""
    if path.is_dir():
        files = [one.as_uri() for one in path.glob("*.whl")]
        path = path / "index.html"
        if not path.is_file():
            return files
    else:
        files = []
    if path.suffix == ".whl":
        return [path.as_uri()] if path.is_file() else []
    answer = Answer(path.as_uri(), "text/html", read(path, LARGEST_PAGE))
    return [*files, *(link for link in _links(answer) if link.startswith((*SCHEMES, "file:")))]


def _links(answer: Answer) -> list[str]:
    """The absolute URLs, without fragments, that a page lists. Raises FetchError."""
    try:
        if answer.kind in (JSON, "application/json"):
            base, targets = answer.url, [file.url for file in decode.from_json(answer.body, _Page).files]
        else:
            anchors = _Anchors(answer.url)
            anchors.feed(answer.body.decode("utf-8", "replace"))
            base, targets = anchors.base, anchors.links
        return [urljoin(base, target).partition("#")[0] for target in targets]
    except ValueError as error:
        why = " ".join(str(error).split())[:120]
        raise FetchError(f"{answer.url} is not a page of a package index ({why})") from error
