"""Guard before every handler: the rights of a request, its origin and its size.

- `Host` must be an address or a name of this machine: a stranger's page whose name suddenly leads here (DNS
  rebinding) sends that name. Not Starlette's TrustedHostMiddleware, which cannot allow all addresses.
- `Origin`, where a browser sends it, must be the desk's own: no other page may ask or post. Pages of the
  origins in `--origin` may use the interface for programs, with the token. Not Starlette's CORSMiddleware,
  which refuses no other origin and works on all addresses alike.
- A browser shows a ticket that works once (`?ticket=`), or the token on a page that asks for it, and gets a
  cookie that scripts cannot read and other sites cannot send. It is a random value that the token seals, not
  the token: browsers send cookies to all servers of a host, whatever their port. It ends with the token.
  Programs send the token as `Authorization: Bearer`.
- Each other person has a token and a role (`roles`).
- A request may not be larger or slower than the limits.
- Logs have no text of a request or a file.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from witness.serve import errors
from witness.serve.app_state import Quotas, discard
from witness.serve.roles import Role, User
from witness.serve.routes.home import template

COOKIE = "witness"
"""Name of the cookie, before the port: browsers share cookies among all ports of a host."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Policy of answers without another one."""
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
"""Addresses that take recordings."""
HEALTH = "/health"
"""Address that tells everyone that the server works, and nothing else."""
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "*, Authorization",
    "Access-Control-Max-Age": "600",
}
UNLOCK = "/unlock"
"""Address of the form with the token."""
PAGES = re.compile(r"/(notes|t/[0-9a-f]{16}/)?")
"""The paths of pages for people."""
LOCKED = "this needs the token: send it as `Authorization: Bearer TOKEN`"
ASKING = (
    "default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Policy of that page, which may fetch nothing."""


@dataclass(frozen=True)
class Access:
    """Names, tickets and people that a desk accepts."""

    names: Sequence[str] = ()
    """Names of this machine besides its addresses and `localhost`."""
    tickets: Sequence[str] = ()
    """Each opens the desk in one browser, once: an address is kept in histories, and a browser's command line
    can be read by everybody on the machine."""
    origins: Sequence[str] = ()
    """Origins whose pages may use the interface for programs."""
    users: Sequence[User] = ()
    public: str = ""
    """The origin of a proxy in front; its host is among `names`."""
    encrypted: bool = False


class Guard:
    """An ASGI application with a guard. `token` grants full access."""

    def __init__(self, app: ASGIApp, token: str, limits: Quotas, access: Access) -> None:
        self.app, self.limits = app, limits
        self._public = access.public.lower()
        self._secure = access.encrypted or self._public.startswith("https:")
        self._origins = frozenset(map(str.lower, access.origins))
        self._owner = User("owner", Role.WRITE, token)
        self._users, self._tickets = (self._owner, *access.users), list(access.tickets)
        self._names = {"localhost", *map(str.lower, access.names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it pass."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        added = {**HEADERS, **self._guest_headers(scope)}
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in added.items():
                    headers.setdefault(name, value)
            await send(message)

        if (answer := self._refuse(scope)) is not None:
            await self._answer_and_close(answer, scope, receive, sending)
            return
        receiving = _limited(receive, self.limits, self._largest(scope))
        try:
            if scope["path"] == UNLOCK and scope["method"] == "POST":
                await (await self._unlock(scope, receiving))(scope, receive, sending)
            else:
                await self.app(scope, receiving, sending)
        except _RefusedError as refusal:
            if begun:
                raise
            await self._answer_and_close(
                errors.error(refusal.status, refusal.message), scope, receive, sending
            )
        except ClientDisconnect:
            pass
        except Exception as raised:
            print(f"witness: {_where(raised)}", file=sys.stderr)  # noqa: T201
            if not begun:
                message = "this is a bug, please report it with what witness serve printed"
                await self._answer_and_close(errors.error(500, message), scope, receive, sending)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return a refusal, or a cookie for a ticket; None: let the request pass."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_here(host):
            return errors.error(421, "this desk has another name; open the address that it printed")
        origin, guest = headers.get("origin"), self._guest_headers(scope)
        same = {f"{scope['scheme']}://{host}".lower(), self._public} - {""}
        if origin is not None and origin.lower() not in same and not guest:
            return errors.error(403, "another site may not use this desk")
        if guest and scope["method"] == "OPTIONS":  # a browser's question before it sends a token
            return Response(status_code=204, headers=_PREFLIGHT)
        if scope["path"] == HEALTH and scope["method"] in ("GET", "HEAD"):
            return JSONResponse({"status": "ok"})
        length = headers.get("content-length", "0")
        largest = self._largest(scope)
        cookie = None if guest else _cookie(scope)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tickets = [value for name, value in query if name == "ticket"]
        if cookie and tickets and scope["method"] == "GET" and self._use_ticket(tickets[0]):
            rest = urlencode([(name, value) for name, value in query if name != "ticket"])
            path = f"/{scope['path'].lstrip('/')}"  # `//name` would be another host
            return self._welcome(self._owner, path + (f"?{rest}" if rest else ""), cookie)
        if (user := self._user(headers, cookie)) is None:
            if cookie and scope["path"] == UNLOCK and scope["method"] == "POST":
                return None  # the body has the token
            if "text/html" in headers.get("accept", ""):
                return _ask_for_token(401, scope["path"])
            return errors.error(401, LOCKED, {"WWW-Authenticate": "Bearer"})
        least = _least_role(scope)
        if least is not None and not user.role.includes(least):
            return errors.error(403, f"you may {user.role} here, and this is more; ask the owner of the desk")
        scope.setdefault("state", {})["user"] = user
        if not (length.isascii() and length.isdigit()) or int(length) > largest:
            return errors.error(413, _too_large(largest))
        return None

    def _largest(self, scope: Scope) -> int:
        return self.limits.upload if scope["path"] in LARGE else self.limits.body

    def _guest_headers(self, scope: Scope) -> dict[str, str]:
        """Return headers that let a page of an accepted origin read the answer; empty: another origin."""
        origin, path = Headers(scope=scope).get("origin", ""), scope["path"]
        if origin.lower() not in self._origins or not (path.startswith(errors.PROGRAMS) or path == HEALTH):
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": "*",
            "Cross-Origin-Resource-Policy": "cross-origin",
            "Vary": "Origin",
        }

    def _is_here(self, host: str) -> bool:
        """Tell whether a Host is this machine's; its port may be a tunnel's that leads here (ssh -L)."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        with suppress(ValueError):
            ipaddress.ip_address(name)  # an address cannot be made to lead here
            return True
        return False

    def _use_ticket(self, text: str) -> bool:
        """Tell whether it is a ticket, and use that up."""
        count = len(self._tickets)
        self._tickets = [ticket for ticket in self._tickets if not _same(text, ticket)]
        return len(self._tickets) < count

    def _welcome(self, user: User, address: str, cookie: str) -> Response:
        """Return a new cookie and an address to go to."""
        session = _sealed(secrets.token_urlsafe(), user)
        answer = RedirectResponse(address, 303)
        answer.set_cookie(cookie, session, httponly=True, samesite="strict", secure=self._secure)
        return answer

    async def _unlock(self, scope: Scope, receive: Receive) -> Response:
        """Answer the page that asks for the token. Raises _RefusedError."""
        content = b""  # not Starlette's form parser, which would take 8 MiB from any stranger
        more = True
        while more and len(content) < _LONGEST_FORM:
            message = await receive()
            content += message.get("body", b"")
            more = message.get("more_body", False)
        fields = dict(parse_qsl(content.decode("latin-1")))
        user = None if more else self._owner_of(fields.get("token", "").strip())
        page = fields.get("place", "")
        if user is None:
            return _ask_for_token(403, page)
        return self._welcome(user, _page(page), _cookie(scope))

    def _owner_of(self, token: str) -> User | None:
        return next((user for user in self._users if _same(token, user.token)), None)

    def _user(self, headers: Headers, cookie: str | None) -> User | None:
        """Return the sender of a request, by a token or the cookie of that name."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (user := self._owner_of(token.strip())) is not None:
            return user
        if cookie is None:
            return None
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(cookie)
        except CookieError:
            return None
        value = "" if morsel is None else morsel.value
        nonce = value.partition(".")[0]
        return next((user for user in self._users if _same(value, _sealed(nonce, user))), None)

    async def _answer_and_close(self, answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and end the connection after reading the rest of the request, or a part of it."""
        answer.headers["Connection"] = "close"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.body":
                await send({**message, "more_body": True})
                await discard(receive, self.limits.body)
                message = {**message, "body": b""}
            await send(message)

        await answer(scope, receive, sending)


def _sealed(nonce: str, user: User) -> str:
    """Return the cookie of a user: it is valid as long as the token, also after a restart."""
    seal = hmac.new(user.token.encode(), f"{nonce} {user.name}".encode(), "sha256")
    return f"{nonce}.{seal.hexdigest()}"


def _least_role(scope: Scope) -> Role | None:
    """Return the least role that may send a request; None if no handler takes it."""
    matching = (route for route in scope["app"].routes if route.matches(scope)[0] == Match.FULL)
    route = next(matching, None)
    return None if route is None else getattr(route, "least", Role.WRITE)


_LONGEST_FORM = 1 << 14
"""Bytes of a form with a token."""


def _cookie(scope: Scope) -> str:
    return f"{COOKIE}-{(scope.get('server') or ('', 0))[1]}"


def _page(path: str) -> str:
    """Return the path if it is that of a page, or else of the first one."""
    return path if PAGES.fullmatch(path) else "/"


def _ask_for_token(status: int, path: str) -> Response:
    """Return the page that asks a person for the token, and then leads to a page."""
    # With "no-referrer" browsers would send the form from the origin "null", which is another site's.
    headers = {"Content-Security-Policy": ASKING, "Referrer-Policy": "same-origin"}
    text = template("unlock.html.j2").render(wrong=status == 403, page=_page(path))
    return HTMLResponse(text, status, headers)


class _RefusedError(Exception):
    """A body that is too large or too slow."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def _limited(receive: Receive, limits: Quotas, largest: int) -> Receive:
    """Wrap `receive`; raises _RefusedError for a body above a size, or below a speed."""
    size = 0
    begun: float | None = None
    whole = False

    async def receiving() -> Message:
        nonlocal size, begun, whole
        if whole:  # Starlette waits for the end of the connection
            return await receive()
        now = asyncio.get_running_loop().time()
        if begun is None:  # the handler may begin to read late
            begun = now
        late = begun + limits.patience + size / limits.slowest - now
        try:
            message = await asyncio.wait_for(receive(), max(0.0, min(limits.patience, late)))
        except asyncio.TimeoutError:
            raise _RefusedError(408, "the request takes too long; send it again") from None
        size += len(message.get("body", b""))
        if size > largest:
            raise _RefusedError(413, _too_large(largest))
        whole = not message.get("more_body", False)
        return message

    return receiving


def _too_large(largest: int) -> str:
    return f"the request is larger than {largest >> 20} MiB; send less"


def _same(text: str, secret: str) -> bool:
    """Compare in a time that does not depend on the difference."""
    return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), secret.encode())


def _where(raised: Exception) -> str:
    """Return the class of an error and our line that led to it; its message may name a person or a file."""
    frames = [frame for frame in traceback.extract_tb(raised.__traceback__) if "witness" in frame.filename]
    last = frames[-1] if frames else None
    line = (
        "" if last is None else f" in {last.name}, line {last.lineno} of {last.filename.rsplit('/', 1)[-1]}"
    )
    return f"{type(raised).__name__}{line}; this is a bug, please report it"
