"""Text from outside, in a line that people read: it steers no terminal, forges no line, shows no password.

Names, headers and addresses are data, and their writers may put any character into them: a line feed forges a
line of a log, an escape sequence or an 8-bit control steers a terminal, and a bidirectional one shows a text
in another order. A url in the wrong place is known by its looks, and refused without being repeated.
"""

import functools
import logging
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TextIO
from urllib.parse import unquote

_SCHEME = re.compile(
    r"\s*(?:jdbc:)?(?:postgres(?:ql)?|mssql|sqlserver|mysql|mariadb|oracle)(?:\+\w+)?:", re.IGNORECASE
)
_KEYWORD = re.compile(
    r"(?:^|;)\s*(?:server|driver|dsn|host|data source|initial catalog|pwd|password)\s*=", re.IGNORECASE
)
#: A login before an ``@``. A password that is not percent-encoded may hold any character.
_LOGIN = re.compile(r"[a-z][a-z0-9+.:-]*://[^@/:]*:.*@", re.IGNORECASE | re.DOTALL)
#: A parameter or keyword with a value, and the words in its name that say that it is a secret. ``sslkey``
#: names a file. No pattern tries a character twice in a row of blanks: addresses of strangers are looked at.
_GIVEN = re.compile(r"(?:^|[;?&])\s*+(?P<name>\w[\w ]*+)=(?=\s*+[^;&\s])")
_SECRET = re.compile(r"pwd|pass|secret|(?:client|server)_key|token", re.IGNORECASE)
_FILES = {"sslkey", "passfile"}
#: Secrets of fewer characters may stand in ordinary words.
_SHORT = 6
#: A secret behind the keyword for it, or behind the user in a url.
_IN_A_URL = r"((?i:pwd|passw(?:or)?d|pass|secret|token|key)[\"']?\s*=\s*[\"'{{]?|://[^:@/\s]*:){}(?!\w)"
#: The most characters of a line of a log.
_LONGEST_LINE = 8_000
#: The most warnings of one kind in this time: a sender can make each message fail in a way of its own.
_MOST_WARNINGS, _WARNINGS_SECONDS = 60, 60.0
#: When the present time of each kind began, and how many there were since.
_warned: dict[tuple[str, str], tuple[float, int]] = {}


def plain(text: str) -> str:
    r"""The text, with an escape like ``\x1b`` for each character that shows nothing by itself."""
    return escaped(text, _escape)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal; one that was closed is None, and no terminal."""
    return stream is not None and stream.isatty()


def moment(at: datetime) -> str:
    """Return a time in UTC as all texts show it: ``2026-01-31 12:00:00Z``."""
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def age(span: timedelta) -> str:
    """Return a span of time in the largest unit that it has twice: ``90 s``, ``5 min``, ``3 d``."""
    seconds = int(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def is_unicode(text: str) -> bool:
    """Whether a text has only characters. A byte of a command line that is no UTF-8 is none."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def plain_json(text: str) -> str:
    r"""A JSON text that means the same, with an escape like ``\u009b`` for characters that show nothing."""
    return escaped(text, _json_escape)


def for_shell(name: str) -> str:
    """A name as the last word of a shell's command.

    A name that begins with a dash follows ``--``, or the command would take it for an option.
    """
    return f"{'-- ' if name.startswith('-') else ''}{shell_word(name)}"


def shell_word(text: str) -> str:
    r"""A text as one word of a shell. It is always quoted, so that people see what to copy as a whole.

    A text with control characters stands in the quotes that bash, zsh and ksh have for them: ``$'a\nb'``.
    """
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"
    return "$'" + "".join(map(_shell_escape, text)) + "'"


def logger(name: str) -> logging.Logger:
    """A module's logger, whose every record is one line, and no long one, whatever names are in it.

    A stack trace has more lines; they steer no terminal either. Of many warnings of one kind the first ones
    of each minute are written.
    """
    made = logging.getLogger(name)
    made.addFilter(_among_the_first)
    made.addFilter(_one_line)
    return made


@functools.cache
def warn_once(log: logging.Logger, text: str, *given: object) -> None:
    """Log a warning, once in a process for the same text and what is given for it."""
    log.warning(text, *given, stacklevel=2)


def _among_the_first(record: logging.LogRecord) -> bool:
    """Whether a warning is one of the first of its kind, which is its text before names are filled in."""
    if record.levelno < logging.WARNING:
        return True
    kind, now = (record.name, str(record.msg)), time.monotonic()
    began, before = _warned.get(kind, (now, 0))
    if now - began >= _WARNINGS_SECONDS:
        began, before = now, 0
    _warned[kind] = began, before + 1
    if before == _MOST_WARNINGS - 1:
        record.msg = f"{record.msg} (More of this kind are left out until the minute is over.)"
    return before < _MOST_WARNINGS


def _one_line(record: logging.LogRecord) -> bool:
    said = record.getMessage()
    if len(said) > _LONGEST_LINE or not said.isprintable():
        end = "…" if len(said) > _LONGEST_LINE else ""
        record.msg, record.args = plain(said[:_LONGEST_LINE]) + end, ()
    if record.exc_info and not record.exc_text:
        trace = logging.Formatter().formatException(record.exc_info)
        record.exc_text = "\n".join(map(plain, trace.split("\n")))
    return True


def escaped(text: str, escape: Callable[[str], str]) -> str:
    """The text with an escape for each character that shows nothing by itself."""
    return text.translate({ord(each): escape(each) for each in set(text) if not each.isprintable()})


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _shell_escape(character: str) -> str:
    r"""Within ``$'…'``, where ``\x`` names a byte of the text and ``\u`` a letter."""
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a command line that is no UTF-8, as Python keeps it
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if 0x80 <= number <= 0xFF else _escape(character)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def is_url(text: str) -> bool:
    """Whether a text looks like a url or a connection string."""
    return _SCHEME.match(text) is not None or _KEYWORD.search(text) is not None


def holds_password(text: str) -> bool:
    """Whether a text looks like a url or a connection string with a password in it."""
    if _LOGIN.match(text.strip()):
        return True
    given = _GIVEN.finditer(unquote(text)) if is_url(text) else ()  # a name can be percent-encoded, too
    names = (each["name"].strip() for each in given)
    return any(name.lower() not in _FILES and _SECRET.search(name) for name in names)


def splits_login(url: str) -> bool:
    """Whether the password holds a slash that is not percent-encoded.

    The rest of the password then looks like the database's name, and would be shown.
    """
    _, _, path = url.partition("://")[2].partition("?")[0].partition("/")
    return "@" in path


def masked(text: str, secrets: Sequence[str]) -> str:
    """The text with ``***`` in the place of each secret.

    A short one, and one of letters or digits alone, may stand in ordinary words, and what is struck out of
    these tells it. It is struck out only where a connection string or a url has it.
    """
    for secret in sorted(secrets, key=len, reverse=True):  # a part of another one leaves the rest of that
        if len(secret) < _SHORT or secret.isalpha() or secret.isdecimal():
            text = re.sub(_IN_A_URL.format(re.escape(secret)), r"\1***", text)
        else:
            text = text.replace(secret, "***")
    return text
