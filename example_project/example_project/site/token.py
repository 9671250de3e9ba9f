"""Cursor tokens: opaque to the client, checked by the site, and they can expire."""

from __future__ import annotations

import base64
import json
import zlib


class TokenRejected(Exception):
    """Raised for a token the site does not take; *code* says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Tokens:
    """Makes and reads tokens; one made before the last :meth:`expire` is refused."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._epoch = 0

    def expire(self) -> None:
        """Refuse every token handed out so far."""
        self._epoch += 1

    def make(self, offset: int) -> str:
        """A token for the rows from *offset* on."""
        content = json.dumps([self._epoch, offset])
        sealed = f"{content}|{self._seal(content)}".encode()
        return base64.urlsafe_b64encode(sealed).decode()

    def read(self, token: str) -> int:
        """The offset in *token*, 0 for an empty one. Raises TokenRejected."""
        if not token:
            return 0
        epoch, offset = self._open(token)
        if epoch != self._epoch:
            raise TokenRejected("EXPIRED_PAGE_TOKEN")
        return offset

    def peek(self, token: str) -> int | None:
        """The offset in *token* even if it has expired; None if it is not one of ours."""
        try:
            return self._open(token)[1] if token else 0
        except TokenRejected:
            return None

    def _open(self, token: str) -> tuple[int, int]:
        try:
            content, seal = base64.urlsafe_b64decode(token).decode().split("|")
            epoch, offset = json.loads(content)
        except ValueError:
            raise TokenRejected("INVALID_PAGE_TOKEN") from None
        if seal != str(self._seal(content)):
            raise TokenRejected("INVALID_PAGE_TOKEN")
        return epoch, offset

    def _seal(self, content: str) -> int:
        return zlib.crc32(f"{self._seed}:{content}".encode())
