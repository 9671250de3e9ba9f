"""What stands before the lists: robots.txt, the start page with its cookies, the login."""

from __future__ import annotations

from itertools import count
from urllib.parse import quote

from example_project.site.behaviour import Rule
from example_project.site.message import Request, Response, html, redirect

LOGIN = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Log in</title></head>\n'
    '<body><form class="login" method="post"><input name="user"><input name="password" '
    'type="password"><button>Log in</button></form></body></html>\n'
)


class Access:
    """Handlers of ``/robots.txt``, ``/start`` and ``/login``.

    Session cookies are ``session=s1``, ``s2``…; ``/start`` also sets ``prefs``, the
    currency and page size that the list then uses.
    """

    def __init__(self, robots: str = "User-agent: *\nAllow: /\n") -> None:
        self.robots = robots
        self._numbers = count(1)

    def robots_txt(self, request: Request, rule: Rule) -> Response:
        return Response(self.robots.encode("utf-8"), content_type="text/plain; charset=utf-8")

    def start(self, request: Request, rule: Rule) -> Response:
        """``/start?currency=EUR&rows=10``: sets both cookies."""
        prefs = f"{request.query.get('currency', 'USD')}:{request.query.get('rows', '')}"
        cookies = (self._session(), f"prefs={quote(prefs, safe=':')}; Path=/")
        page = html('<!DOCTYPE html><title>Welcome</title><a href="/list?page=1">The list</a>')
        return page._replace(headers=tuple(("Set-Cookie", cookie) for cookie in cookies))

    def login(self, request: Request, rule: Rule) -> Response:
        """``/login``: any name and password will do; leads on to ``?next=``."""
        if request.method != "POST":
            return html(LOGIN)
        return redirect(request.query.get("next", "/list?page=1"), (self._session(),))

    def _session(self) -> str:
        return f"session=s{next(self._numbers)}; Path=/; HttpOnly"
