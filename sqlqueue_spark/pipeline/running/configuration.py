"""The configuration of a job: flags win over ``--set``, and ``--set`` over the TOML file."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.fields import Bare, Options, option, written


@dataclass(frozen=True, kw_only=True)
class JobOptions(Options):
    available_now: bool = option("Take what is there now and end, instead of running on.", False)


@dataclass(frozen=True, kw_only=True)
class SendingOptions(JobOptions):
    checkpoint: str = option("Folder of the stream's checkpoint, its own alone.")

    @property
    def calls_for_each_message(self) -> bool:
        """Whether a function is called for each message, so that a row may take long, and fail by itself."""
        return False


def configuration(
    names: Sequence[str], config: Path | None, settings: Sequence[str], given: Mapping[str, str | bool | None]
) -> dict[str, dict[str, str]]:
    """The options of each section.

    :param settings: the values of ``--set``, each ``section.key=value``.
    :param given: the values of the flags by ``section.key``; None or False for one not given.
    :raises ConfigurationError: the file or a ``--set`` is malformed. Values are not checked here.
    """
    sections: dict[str, dict[str, str]] = {name: {} for name in names}
    if config is not None:
        _load(sections, config)
    for setting in settings:
        name, equals, value = setting.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot) or section not in sections:
            said = f"--set {name}=…" if equals else "A --set without ="  # the value may be a secret
            *some, last = (f"{each}.KEY=VALUE" for each in names)
            raise ConfigurationError(f"{said} cannot be read; write {', '.join(some)} or {last}.")
        _put(sections[section], key, value)
    for place, told in given.items():
        if told is not None and told is not False:  # an empty text is put, and the option refuses it
            section, _, key = place.partition(".")
            _put(sections[section], key, told)
    return sections


def _load(sections: dict[str, dict[str, str]], config: Path) -> None:
    where, known = f"configuration {config}", ", ".join(f"[{each}]" for each in sections)
    try:
        # Windows' editors write a byte-order mark.
        loaded = tomllib.loads(config.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"The {where} cannot be read ({error}); name another file.") from error
    except ValueError as error:  # it is no TOML, or no UTF-8
        raise ConfigurationError(f"The {where} is not valid TOML ({error}); correct it.") from error
    for name, values in loaded.items():
        # TOML makes this of [[name]].
        is_tables = isinstance(values, list) and any(isinstance(each, dict) for each in values)
        if name in sections and is_tables:
            raise ConfigurationError(
                f"The {where} has a list in the place of the section [{name}]; write [{name}] once."
            )
        if name not in sections and (isinstance(values, dict) or is_tables):
            raise ConfigurationError(f"The {where} has a section [{name}]; this job knows only {known}.")
        if not isinstance(values, dict):
            raise ConfigurationError(
                f"The key {name} of the {where} stands in no section; put it below one of {known}."
            )
        for key, value in _flat(values):
            if key.lower() == "queues" and isinstance(value, list) and {*map(type, value)} <= {str}:
                value = json.dumps(value)  # noqa: PLW2901 -- an option is a text
            if not isinstance(value, str | bool | int | float):
                kind = "a list" if isinstance(value, list) else "a date or time"
                raise ConfigurationError(
                    f"The value of {key} in [{name}] of the {where} is {kind}; write one text, number, "
                    "true or false."
                )
            _put(sections[name], key, value if isinstance(value, str) else Bare(written(value)))


def _flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Turn tables in tables back into names with dots: TOML reads ``endpoint.Billing.schema`` as tables."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _put(options: dict[str, str], key: str, value: object) -> None:
    """Set an option, and drop one whose name differs only by upper and lower case."""
    for same in [each for each in options if each.lower() == key.lower()]:
        del options[same]
    options[key] = written(value)
