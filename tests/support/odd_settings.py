"""Settings of a database that change what names and texts mean in its sessions."""

from collections.abc import Iterable

from tests.support.kept_connections import forget
from tests.support.postgresql import PostgresEngine

#: The parameters of each kind of setting, with the values that ``ALTER DATABASE … SET`` takes.
SETTINGS = {
    # What the server writes there, 30/03/2031 06:00:00 ChST, it does not read.
    "dates": {"DateStyle": "'SQL, DMY'", "TimeZone": "'Pacific/Guam'"},
    # Before version 18, IST is read as the time of Israel, which is 3.5 hours away from that of India.
    "German dates": {"DateStyle": "German", "TimeZone": "'Asia/Kolkata'"},
    "intervals": {"IntervalStyle": "sql_standard"},
    "numbers": {"extra_float_digits": "-15"},
    "bytes": {"bytea_output": "escape"},
    "texts": {"standard_conforming_strings": "off", "escape_string_warning": "off"},
    "arrays": {"array_nulls": "off"},
    "quotes": {"quote_all_identifiers": "on"},
    # The function is found instead of the server's own.
    "names": {"search_path": "public, odd, pg_catalog"},
}
_FUNCTIONS = (
    "CREATE SCHEMA odd",
    "CREATE FUNCTION odd.octet_length(text) RETURNS integer LANGUAGE sql AS 'SELECT 1 / 0'",
    "CREATE FUNCTION odd.octet_length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT 1 / 0'",
    "CREATE FUNCTION odd.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT (1 / 0)::text'",
)


def make_odd(engine: PostgresEngine, kinds: Iterable[str]) -> None:
    """Set what the kinds say for each session of the database that begins after this."""
    for statement in _FUNCTIONS:
        engine.execute(statement)
    ((database,),) = engine.fetch("SELECT quote_ident(current_database())")
    for kind in kinds:
        for name, value in SETTINGS[kind].items():
            engine.execute(f"ALTER DATABASE {database} SET {name} TO {value}")
    forget(engine.url)
