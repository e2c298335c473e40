"""How an option is declared: its name, meaning, parser, default and secrecy on one line.

Parsing, "did you mean", the tables of docs/options.md, ``sqlqueue options`` and redaction all read that line.
Names are camelCase outside and snake_case here; outside they are case-insensitive, as Spark's are.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field
from datetime import timedelta
from typing import Any, Self

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.did_you_mean import did_you_mean, hint
from sqlqueue_spark.plain_text import holds_password, is_unicode, is_url

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_SECONDS = 3650 * 86400
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Bare(str):  # noqa: SLOT000 -- it has no attribute
    """A number, true or false out of a file, where a text stands in quotes."""


def text(value: str) -> str:
    if not value or isinstance(value, Bare):
        raise ValueError("a text in quotes" if value else "some text")
    return value


def address(value: str) -> str:
    """A queue's address; a url, whose login must not be repeated, is none."""
    if is_url(text(value)):
        raise ValueError("the address of a queue, and a url is given as the option url")
    return value


def positive(value: str) -> int:
    if not re.fullmatch(r"\d{1,19}", value) or not 0 < int(value) < 1 << 63:
        raise ValueError("a whole number above 0")
    return int(value)


def number(value: str) -> int:
    if not value.isdecimal():
        raise ValueError("a number, 0 or more")
    return int(value)


def duration(value: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,18})(ms|s|m|h|d)", value.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise ValueError("a duration above 0 like 500ms, 30s, 10m or 7d, of ten years at most")
    return timedelta(seconds=seconds)


def duration_of(name: str, given: str | timedelta) -> timedelta:
    """The duration that an argument of this name stands for.

    :raises ConfigurationError: it is none, or not above 0.
    """
    try:
        return given if isinstance(given, timedelta) and given > timedelta(0) else duration(f"{given}")
    except ValueError as error:
        raise ConfigurationError(f"{name} is {given!r}; write {error}.") from error


def size(value: str) -> int:
    match = re.fullmatch(r"(\d{1,18})([kmg]?)", value.strip().lower())
    if not match or not int(match[1]):
        raise ValueError("a size in bytes like 500k, 64m or 1g")
    return int(match[1]) * _SIZES[match[2]]


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


#: What the value of an option is, by its parser, in the words of the tables.
_KINDS: Mapping[Callable[[str], Any], str] = {
    address: "address",
    positive: "number",
    number: "number",
    duration: "duration",
    size: "size",
    boolean: "true or false",
}


def option(
    meaning: str,
    default: Any = MISSING,
    *,
    parse: Callable[[str], Any] | None = None,
    kind: str = "",
    shown: str = "",
    secret: bool = False,
) -> Any:
    """Declare an option. Without a default it is required.

    :param parse: by default a text, or what the default is: true or false, a number, a duration.
    :param kind: what its value is, where the parser does not tell.
    :param shown: the default in words, where the value does not tell it.
    """
    parse = parse or {bool: boolean, int: number, timedelta: duration}.get(type(default), text)
    shown = shown or _shown(default, parse)
    kind = kind or _KINDS.get(parse, "text")
    about = {"meaning": meaning, "parse": parse, "kind": kind, "shown": shown, "secret": secret}
    return field(default=default, metadata=about, repr=not secret)


def _shown(default: Any, parse: Callable[[str], Any]) -> str:
    """A default as people write it in a table."""
    if default is MISSING:
        return "required"
    if default is None or default == ():
        return "none"
    return f"`{_in_largest(default, _SIZES) if parse is size else written(default)}`"


def _in_largest(number: int, units: Mapping[str, int]) -> str:
    """A number in the largest unit that leaves no rest."""
    unit = max((each for each in units if number % units[each] == 0), key=units.__getitem__)
    return f"{number // units[unit]}{unit}"


def written(value: object) -> str:
    """A value as the text of an option: true and 1h for ``True`` and an hour."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, timedelta):
        return value if isinstance(value, str) else str(value)
    units = {unit: round(seconds * 1000) for unit, seconds in _UNITS.items()}
    return _in_largest(round(value / timedelta(milliseconds=1)), units)


def option_per_name(pattern: str, meaning: str, *, secret: bool = False) -> Any:
    """Declare an option that is given once a name, like ``queue.<name>.schema``, in any case."""
    kind = "url" if secret else "text"
    about = {"pattern": pattern, "meaning": meaning, "kind": kind, "shown": "none", "secret": secret}
    return field(default_factory=dict, metadata=about, repr=not secret, hash=False)


@dataclass(frozen=True)
class Described:
    name: str
    kind: str
    default: str
    meaning: str
    secret: bool


class Options:
    """What all option sets share: reading them from text, and telling people about them."""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Read options as Spark or a person gave them.

        :raises ConfigurationError: an option is unknown, missing or malformed.
        """
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"The options are {type(given).__name__}; give a dict of them.")
        given = {name: written(value) for name, value in given.items() if value is not None}  # as Spark does
        fields = [f for f in dataclasses.fields(cls) if f.metadata]  # type: ignore[arg-type] # a dataclass
        values: dict[str, Any] = {f.name: {} for f in fields if "pattern" in f.metadata}
        for given_name, value in given.items():
            if not is_unicode(value):
                raise ConfigurationError(
                    f"The option {given_name} holds bytes that are no UTF-8; write it in UTF-8."
                )
            its, key = _field(given_name, fields)
            name, secret = given_name if key else camel(its.name), its.metadata["secret"]
            if not secret and holds_password(value):
                raise ConfigurationError(
                    f"The option {name} is shown in logs and plans, and a url with a password stands there; "
                    "give it as the option url."
                )
            if key:
                values[its.name][key] = value
            elif value or its.default is not MISSING:  # else an empty widget or variable
                try:
                    values[its.name] = its.metadata["parse"](value)
                except ValueError as error:
                    said = "the given value" if secret else repr(value)
                    raise ConfigurationError(f"The option {name} must be {error}, not {said}.") from None
        for f in fields:
            if "parse" in f.metadata and f.default is MISSING and f.name not in values:
                meaning = f.metadata["meaning"].rstrip(".")
                raise ConfigurationError(f"The option {camel(f.name)} is required; set it to: {meaning}.")
        parsed = cls(**values)
        parsed.check()
        return parsed

    def check(self) -> None:
        """Refuse options that do not go together.

        :raises ConfigurationError: the message says which and why.
        """

    @classmethod
    def described(cls) -> Iterator[Described]:
        """The options in the order of their declaration, for tables and help."""
        for f in dataclasses.fields(cls):  # type: ignore[arg-type] # every subclass is a dataclass
            if about := f.metadata:
                name = about.get("pattern", camel(f.name))
                yield Described(name, about["kind"], about["shown"], about["meaning"], about["secret"])


def said(options: Mapping[str, str], name: str) -> str | None:
    """An option's value; names are case-insensitive."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _field(name: str, fields: Sequence[Field[Any]]) -> tuple[Field[Any], str]:
    """The field of an option, and the key where the option is given once for each name; else no key.

    :raises ConfigurationError: there is no such option.
    """
    for its in fields:
        if (pattern := its.metadata.get("pattern")) is None:
            if camel(its.name).lower() == name.lower():
                return its, ""
        else:
            before, after = map(re.escape, pattern.split("<name>"))
            if match := re.fullmatch(f"{before}(.+){after}", name, re.IGNORECASE | re.DOTALL):
                return its, match[1].lower()
    known = [camel(f.name) for f in fields if "parse" in f.metadata]
    told = hint(name, known) or did_you_mean(name, known, f"the options are {', '.join(known)}.")
    shown = "***" if holds_password(name) else name
    raise ConfigurationError(f"There is no option {shown!r}; {told}")
