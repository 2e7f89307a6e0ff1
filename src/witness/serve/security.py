"""What stands before every handler: who may ask, from where, and how much.

- `Host` must be an address or a name of this machine: a stranger's page whose name suddenly leads here (DNS
  rebinding) sends that name.
- `Origin`, where a browser sends it, must be the desk's own: no other page may ask or post. Those that the
  desk was started with (`--origin`) may use the interface for programs, with the token.
- A browser shows a ticket that works once (`?ticket=`), or the token on a page that asks for it, and gets a
  cookie that scripts cannot read and other sites cannot send. It is a random value: browsers send cookies to
  all servers of a host, whatever their port. Programs send the token as `Authorization: Bearer`.
- Others than the owner have tokens of their own, with a role that says what they may do (`roles`).
- A request may not be larger or slower than the limits.
- Nothing that a request or a file says goes into a log.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from witness.serve import errors, roles
from witness.serve.app_state import Quotas
from witness.serve.roles import Role, User

COOKIE = "witness"
"""Name of the cookie, before the port: browsers share cookies among all ports of a host."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""For all that names no policy of its own."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LARGE = ("/api/recordings", "/v1/audio/transcriptions", "/v1/audio/translations")
"""Where recordings are sent."""
HEALTH = "/health"
"""Says that the server answers, to everybody, and nothing else."""
PROGRAMS = "/v1/"
"""Where the interface for programs is."""
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "*, Authorization",
    "Access-Control-Max-Age": "600",
}
UNLOCK = "/unlock"
"""Where the page for the token sends it."""
PAGES = re.compile(r"/(notes|t/[0-9a-f]{16}/)?")
"""The paths of pages for people."""
LOCKED = "this needs the token: send it as `Authorization: Bearer TOKEN`"
ASKING = (
    "default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The policy of that page, which fetches nothing: nothing is given out yet."""
MOST_SESSIONS = 100
"""Browsers of one person that are let in at the same time; beyond them, the earliest asks again."""
LINGER = 1.0
"""Seconds for which the rest of a refused request is read, so that its client reads the answer."""


@dataclass(frozen=True)
class Access:
    """Who else gets to the desk, and how."""

    names: Sequence[str] = ()
    """What this machine is called besides its addresses and `localhost`."""
    tickets: Sequence[str] = ()
    """Each opens the desk in one browser, once: an address is kept in histories, and a browser's command line
    can be read by everybody on the machine."""
    origins: Sequence[str] = ()
    """Their pages may use what programs use."""
    users: Sequence[User] = ()
    """They have tokens of their own."""
    public: str = ""
    """The origin by which a proxy leads here; its host is among `names`."""
    encrypted: bool = False
    """Whether connections are."""


class Guard:
    """The ASGI application, guarded. Whoever has `token` may do everything."""

    def __init__(self, app: ASGIApp, token: str, limits: Quotas, access: Access) -> None:
        self.app, self.limits = app, limits
        self._public = access.public.lower()
        self._secure = access.encrypted or self._public.startswith("https:")
        self._origins = frozenset(map(str.lower, access.origins))
        self._owner = User("owner", Role.WRITE, token)
        self._users, self._tickets = (self._owner, *access.users), list(access.tickets)
        self._sessions: dict[str, User] = {}  # in the order in which they began
        self._names = {"localhost", *map(str.lower, access.names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it pass."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        guest = self._guest(scope)
        send = _with_headers(send, {**HEADERS, **guest})
        if (answer := self._refuse(scope)) is not None:
            await self._answer_and_close(answer, scope, receive, send)
            return
        body = _Body(receive, self.limits, scope["path"] in LARGE)
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if scope["path"] == UNLOCK and scope["method"] == "POST":
                await (await self._unlock(scope, body.receive))(scope, receive, sending)
            else:
                await self.app(scope, body.receive, sending)
        except _RefusedError as refusal:
            if begun:
                raise
            await self._answer_and_close(errors.error(refusal.status, refusal.message), scope, receive, send)
        except ClientDisconnect:
            pass  # nobody reads an answer
        except Exception as raised:
            print(f"witness: {_where(raised)}", file=sys.stderr)  # noqa: T201
            if not begun:
                message = "this is a bug, please report it with what witness serve printed"
                await self._answer_and_close(errors.error(500, message), scope, receive, send)

    def _refuse(self, scope: Scope) -> Response | None:
        """The answer to who may not ask, or asks for the cookie; None: go on."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_here(host):
            return errors.error(421, "this desk has another name; open the address that it printed")
        origin, guest = headers.get("origin"), self._guest(scope)
        own = {f"{scope['scheme']}://{host}".lower(), self._public} - {""}
        if origin is not None and origin.lower() not in own and not guest:
            return errors.error(403, "another site may not use this desk")
        if guest and scope["method"] == "OPTIONS":  # what a browser asks before it sends a token
            return Response(status_code=204, headers=_PREFLIGHT)
        if scope["path"] == HEALTH and scope["method"] in ("GET", "HEAD"):
            return JSONResponse({"status": "ok"})
        length = headers.get("content-length", "0")
        largest = self.limits.upload if scope["path"] in LARGE else self.limits.body
        cookie = None if guest else f"{COOKIE}-{(scope.get('server') or ('', 0))[1]}"
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "ticket"]
        if cookie and given and scope["method"] == "GET" and self._opens(given[0]):
            rest = urlencode([(name, value) for name, value in query if name != "ticket"])
            path = f"/{scope['path'].lstrip('/')}"  # `//name` would be another host
            return self._welcome(self._owner, path + (f"?{rest}" if rest else ""), cookie)
        if (user := self._knows(headers, cookie)) is None:
            if cookie and scope["path"] == UNLOCK and scope["method"] == "POST":
                return None  # the body has the token
            if "text/html" in headers.get("accept", ""):
                return _ask_for_token(401, scope["path"])
            return errors.error(401, LOCKED, {"WWW-Authenticate": "Bearer"})
        least = roles.least(scope)
        if least is not None and not user.role.includes(least):
            return errors.error(403, f"you may {user.role} here, and this is more; ask the owner of the desk")
        scope.setdefault("state", {})["user"] = user
        if not (length.isascii() and length.isdigit()) or int(length) > largest:
            return errors.error(413, _too_large(largest))
        return None

    def _guest(self, scope: Scope) -> dict[str, str]:
        """The headers that let a page of another origin read the answer; empty: none may."""
        origin, path = Headers(scope=scope).get("origin", ""), scope["path"]
        if origin.lower() not in self._origins or not (path.startswith(PROGRAMS) or path == HEALTH):
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": "*",
            "Cross-Origin-Resource-Policy": "cross-origin",
            "Vary": "Origin",
        }

    def _is_here(self, host: str) -> bool:
        """Whether a Host is this machine's; its port may be another's that leads here (ssh -L)."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)  # no name, so no name that was made to lead here
        except ValueError:
            return False
        return True

    def _opens(self, given: str) -> bool:
        """Whether it is a ticket, which is used up."""
        found = next((ticket for ticket in self._tickets if _same(given, ticket)), None)
        if found is not None:
            self._tickets.remove(found)
        return found is not None

    def _welcome(self, user: User, place: str, cookie: str) -> Response:
        """The cookie, and where to go."""
        session = secrets.token_urlsafe()
        self._sessions[session] = user
        earlier = [key for key, person in self._sessions.items() if person == user]
        if len(earlier) > MOST_SESSIONS:
            del self._sessions[earlier[0]]
        answer = RedirectResponse(place, 303)
        answer.set_cookie(cookie, session, httponly=True, samesite="strict", secure=self._secure)
        return answer

    async def _unlock(self, scope: Scope, receive: Receive) -> Response:
        """The answer to the page that asks for the token. Raises _RefusedError."""
        content = b""
        more = True
        while more and len(content) < _LONGEST_FORM:
            message = await receive()
            content += message.get("body", b"")
            more = message.get("more_body", False)
        fields = dict(parse_qsl(content.decode("latin-1")))
        user = None if more else self._whose(fields.get("token", "").strip())
        place = fields.get("place", "")
        if user is None:
            return _ask_for_token(403, place)
        return self._welcome(user, _page(place), f"{COOKIE}-{(scope.get('server') or ('', 0))[1]}")

    def _whose(self, token: str) -> User | None:
        """Whom a token belongs to."""
        return next((user for user in self._users if _same(token, user.token)), None)

    def _knows(self, headers: Headers, cookie: str | None) -> User | None:
        """Who sends a request, by a token or the cookie of that name."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and (user := self._whose(given.strip())) is not None:
            return user
        if cookie is None:
            return None
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(cookie)
        except CookieError:
            return None
        value = "" if morsel is None else morsel.value
        return next((user for session, user in self._sessions.items() if _same(value, session)), None)

    async def _answer_and_close(self, answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and end the connection, because what else comes on it would be the rest of the request.

        Not at once: what was sent and is not read would take the answer from its client.
        """
        answer.headers["Connection"] = "close"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.body":
                await send({**message, "more_body": True})
                await _discard(receive, self.limits.body)
                message = {**message, "body": b""}
            await send(message)

        await answer(scope, receive, sending)


_LONGEST_FORM = 1 << 14
"""Bytes of a form with a token."""


def _page(place: str) -> str:
    """The path of a page, or else of the first one: no form leads anywhere else."""
    return place if PAGES.fullmatch(place) else "/"


def _ask_for_token(status: int, place: str) -> Response:
    """The page that asks a person for the token, and leads to what was asked for."""
    wrong = "<p role=alert>That is not the token of this desk.</p>" if status == 403 else ""
    # With "no-referrer" browsers would send the form from the origin "null", which is another site's.
    headers = {"Content-Security-Policy": ASKING, "Referrer-Policy": "same-origin"}
    return HTMLResponse(_ASK.replace("WRONG", wrong).replace("PLACE", _page(place)), status, headers)


_ASK = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Open the desk</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 4rem auto; padding: 0 1rem }
input, button { font: inherit; padding: .4rem .6rem; max-width: 100%; box-sizing: border-box }
input { width: 24rem }
</style>
<main>
<h1>Open the desk</h1>
WRONG
<form method="post" action="/unlock"><input type="hidden" name="place" value="PLACE">
<p><label for="token">Token of <code>witness serve</code></label></p>
<p><input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Open</button></p>
</form>
<p>The address that <code>witness serve</code> printed works once. The token is the one that it was started
with (<code>--token</code> or <code>WITNESS_TOKEN</code>); otherwise it printed one.</p>
</main>
</html>
"""


class _RefusedError(Exception):
    """A body that is too large or too slow."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class _Body:
    """The body of a request, up to a size and not below a speed."""

    def __init__(self, receive: Receive, limits: Quotas, large: bool) -> None:
        self._receive, self._limits = receive, limits
        self._largest = limits.upload if large else limits.body
        self._read = 0
        self._begun: float | None = None
        self._whole = False

    async def receive(self) -> Message:
        """The next message. Raises _RefusedError."""
        if self._whole:  # it waits for the end of the connection
            return await self._receive()
        now = asyncio.get_running_loop().time()
        if self._begun is None:  # nothing is late that nobody has asked for
            self._begun = now
        patience = self._limits.patience
        late = self._begun + patience + self._read / self._limits.slowest - now
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, min(patience, late)))
        except asyncio.TimeoutError:
            raise _RefusedError(408, "the request takes too long; send it again") from None
        self._read += len(message.get("body", b""))
        if self._read > self._largest:
            raise _RefusedError(413, _too_large(self._largest))
        self._whole = not message.get("more_body", False)
        return message


def _too_large(largest: int) -> str:
    return f"the request is larger than {largest >> 20} MiB; send less"


def _same(one: str, other: str) -> bool:
    """Whether both are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())


def _with_headers(send: Send, added: Mapping[str, str]) -> Send:
    """Adds the headers that an answer does not have."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in added.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


async def _discard(receive: Receive, most: int) -> None:
    """Read so many bytes that a client still sends, for a moment."""

    async def drain() -> None:
        left = most
        while left > 0 and (message := await receive()).get("more_body", False):
            left -= len(message["body"])

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(drain(), LINGER)


def _where(raised: Exception) -> str:
    """The kind of an error and the line of ours that led to it; its message may name a person or a file."""
    frames = [frame for frame in traceback.extract_tb(raised.__traceback__) if "witness" in frame.filename]
    last = frames[-1] if frames else None
    place = (
        "" if last is None else f" in {last.name}, line {last.lineno} of {last.filename.rsplit('/', 1)[-1]}"
    )
    return f"{type(raised).__name__}{place}; this is a bug, please report it"
