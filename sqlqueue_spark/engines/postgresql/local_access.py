"""What a url of PostgreSQL does beyond saying where the server is and which login is used.

libpq loads a library for ``sslkey``, writes a file for ``sslkeylogfile``, reads passwords of this machine for
``passfile`` and ``service``, and sends a password that was kept for ``host`` to ``hostaddr``. What a url does
not say it takes from this machine: a password, a certificate, a Kerberos ticket.
https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
"""

import os
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import urlencode

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from sqlqueue_spark.engines.connection import Target
from sqlqueue_spark.errors import ConfigurationError

#: Parameters that can do no more than that. All others count as more, those of new versions too.
_HARMLESS = frozenset(
    """
    application_name channel_binding client_encoding connect_timeout dbname fallback_application_name host
    keepalives keepalives_count keepalives_idle keepalives_interval load_balance_hosts max_protocol_version
    min_protocol_version options password port sslcompression ssl_max_protocol_version
    ssl_min_protocol_version sslmode sslnegotiation sslsni target_session_attrs tcp_user_timeout user
    """.split()
)
#: The values of other parameters that can do no more.
_HARMLESS_VALUES = {
    ("gssdelegation", "0"),
    ("gssencmode", "disable"),
    ("sslcertmode", "disable"),
    ("sslrootcert", "system"),
}
#: Where libpq finds a password that the url does not have.
_PASSWORDS = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE")
#: No file can be there, so libpq goes on as without one.
_NO_FILE = "/dev/null/none"
_TICKETS = ("gss", "sspi")
#: What libpq takes from this machine where the url does not say it: the variables of the environment that
#: allow this by their names, and the parameters that switch it off. A server may ask for a ticket whatever
#: ``gssencmode`` is; a libpq before 16, which has no ``require_auth``, finds no ticket for that service.
_OF_THE_MACHINE: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("PGPASSWORD",): {"password": ""},
    ("PGPASSFILE", ".pgpass"): {"passfile": _NO_FILE},
    ("PGSSLCERT",): {"sslcert": _NO_FILE},
    ("PGOPTIONS",): {"options": ""},
    ("KRB5CCNAME",): {"gssencmode": "disable", "krbsrvname": "none", "require_auth": ""},
}


def local_access(target: Target) -> Iterator[tuple[str, str]]:
    """The parameters that do more: what each is, and its name and value."""
    given = _parameters(target.url)
    for name, value in given.items():
        if not _is_harmless(name, value):
            yield "parameter of the url", f"{name}={value}"
    for host in given.get("host", "").split(","):
        if not host or host.startswith(("/", "@")):
            yield "local socket of the url", f"host={host or 'local'}"
    if not (target.password or target.by_token or given.get("password")):
        kept = [name for name in _PASSWORDS if os.environ.get(name)]
        if kept or os.path.exists(os.path.expanduser("~/.pgpass")):  # noqa: PTH110, PTH111 -- without errors
            yield "password kept on this machine for a url without one", kept[0] if kept else ".pgpass"


def confined(target: Target, allowed: Collection[str]) -> str:
    url, given = target.url, _parameters(target.url)
    said = {name for name, value in given.items() if not _is_harmless(name, value)}
    if "service" in said or "PGSERVICE" in allowed:  # which may give each of these, and takes no other word
        return url
    off: dict[str, str] = {}
    for names, parameters in _OF_THE_MACHINE.items():
        if not said & parameters.keys() and not {*names} & {*allowed}:
            off |= {name: value for name, value in parameters.items() if not given.get(name)}
            if "require_auth" in parameters:
                asked = given.get("require_auth") or os.environ.get("PGREQUIREAUTH", "")
                off["require_auth"] = _without_tickets(asked)
    known = {each.keyword.decode() for each in pq.Conninfo.get_defaults()}
    off = {name: value for name, value in off.items() if name in known}
    for sign in "?&":  # the url has a ? before its parameters, and may have one in its password
        new = f"{url}{sign}{urlencode(off)}"
        try:
            if conninfo_to_dict(new) == given | off:
                return new
        except psycopg.Error:
            continue
    raise ConfigurationError(_NOT_UNDERSTOOD)


_NOT_UNDERSTOOD = "The driver does not understand the url; correct it."


def _parameters(url: str) -> dict[str, str]:
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise ConfigurationError(_NOT_UNDERSTOOD) from None  # the text of the error repeats some of the url
    return {name: str(value) for name, value in given.items() if value is not None}


def _is_harmless(name: str, value: str) -> bool:
    if name == "require_auth":
        return not {*_TICKETS} & {*value.split(",")}
    return name in _HARMLESS or (name, value) in _HARMLESS_VALUES


def _without_tickets(methods: str) -> str:
    """A value of ``require_auth`` that lets no Kerberos ticket be the login."""
    kept = [each for each in methods.split(",") if each and each.lstrip("!") not in _TICKETS]
    excludes = not kept or kept[0].startswith("!")
    return ",".join([*kept, *(f"!{each}" for each in _TICKETS if excludes)])
