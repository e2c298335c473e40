"""Addresses: read as the transports write them, written canonically, resolved to one table."""

from dataclasses import replace

import pytest

from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Address, Naming, Table
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.messages.transit import goes_elsewhere
from sqlqueue_spark.options import ConnectionOptions

READ = {
    "orders": ("orders", None, None, "orders"),
    "orders@dbo": ("orders", "dbo", None, "orders@[dbo]"),
    "orders@[dbo]": ("orders", "dbo", None, "orders@[dbo]"),
    "orders@dbo@shop": ("orders", "dbo", "shop", "orders@[dbo]@[shop]"),
    "orders@[dbo]@[shop]": ("orders", "dbo", "shop", "orders@[dbo]@[shop]"),
    "orders@[dbo]@shop": ("orders", "dbo", "shop", "orders@[dbo]@[shop]"),
    "orders@dbo@[shop]": ("orders", "dbo", "shop", "orders@[dbo]@[shop]"),
    "t@[]@[cat]": ("t", None, "cat", "t@[]@[cat]"),
    "t@@cat": ("t", None, "cat", "t@[]@[cat]"),
    "t@[s]@[]": ("t", "s", None, "t@[s]"),
    "t@[]": ("t", None, None, "t"),
    "t@": ("t", None, None, "t"),
    "my]table": ("my]table", None, None, "my]table"),
    "[my table]": ("[my table]", None, None, "[my table]"),
    "Sales.Orders v2": ("Sales.Orders v2", None, None, "Sales.Orders v2"),
    " padded ": (" padded ", None, None, " padded "),
    "t@[my]]schema]": ("t", "my]schema", None, "t@[my]]schema]"),
    "t@[a@b]@[c@d]": ("t", "a@b", "c@d", "t@[a@b]@[c@d]"),
    "t@[]]]@[]]]]]": ("t", "]", "]]", "t@[]]]@[]]]]]"),
    "t@[a[b]": ("t", "a[b", None, "t@[a[b]"),
    "t@my schema@my.cat": ("t", "my schema", "my.cat", "t@[my schema]@[my.cat]"),
    "t'; DROP TABLE x --@[s'; --]": ("t'; DROP TABLE x --", "s'; --", None, "t'; DROP TABLE x --@[s'; --]"),
    '"s"."t"': ('"s"."t"', None, None, '"s"."t"'),
    "t{0}%s?@[{x}]": ("t{0}%s?", "{x}", None, "t{0}%s?@[{x}]"),
    "表@[схема]": ("表", "схема", None, "表@[схема]"),
}


@pytest.mark.parametrize("text", READ)
def test_an_address_is_read_and_written_canonically(text):
    table, schema, catalog, canonical = READ[text]
    assert Address.parse(text) == Address(table=table, schema=schema, catalog=catalog)
    assert str(Address.parse(text)) == canonical


@pytest.mark.parametrize("text", READ)
def test_a_canonical_form_means_the_same_address(text):
    address = Address.parse(text)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", " ", "@", "@dbo", "@[dbo]@[shop]"])
def test_an_address_without_a_table_is_refused(text):
    with pytest.raises(ConfigurationError) as caught:
        Address.parse(text)
    assert str(caught.value) == (
        f"The queue address {text!r} has no table name; write table@[schema]@[catalog]."
    )


@pytest.mark.parametrize("text", ["a\0b", "a@[d\0]", '"a"."b\ud83d"', "\udc00"])
def test_an_address_with_a_character_that_no_name_can_have_is_refused(text):
    with pytest.raises(ConfigurationError, match="holds a character that no name can have"):
        Address.parse(text, quoted=True)


@pytest.mark.parametrize(
    "text", ["t@[dbo", "t@dbo]", "t@[a]b]", "t@[a]b", "t@a@b@c", "t@[a]@[b]@[c]", "t@a[b]", "t@@@"]
)
def test_an_address_with_a_broken_end_is_refused(text):
    with pytest.raises(ConfigurationError) as caught:
        Address.parse(text)
    assert str(caught.value) == (
        f"The queue address {text!r} cannot be read after the first '@'; "
        "write table@[schema]@[catalog] and double every ']' inside the brackets."
    )


@pytest.mark.parametrize("text", ["orders", "orders@MACHINE-7", "orders@[dbo]@[shop]", "orders@]broken[@@@"])
def test_legacy_addresses_end_at_the_first_at_sign(text):
    assert Address.parse(text, legacy=True) == Address(table="orders")


QUOTED = {
    '"orders"': ("orders", None),
    '"sales"."orders"': ("orders", "sales"),
    '"a""b"."c.d"': ("c.d", 'a"b'),
    '"s@x"."t@y"': ("t@y", "s@x"),
    '""""': ('"', None),
    '"[s]"."]"': ("]", "[s]"),
}


@pytest.mark.parametrize("text", QUOTED)
def test_the_postgresql_transports_form_is_read(text):
    table, schema = QUOTED[text]
    assert Address.parse(text, quoted=True) == Address(table=table, schema=schema)


@pytest.mark.parametrize("text", ['"orders', 'or"ders"', '"a"."b"."c"', '"a".b', '"a" . "b"', '""', '"a"b"'])
def test_other_quotes_are_part_of_the_name(text):
    """Only the PostgreSQL transport's own form gives them a meaning."""
    assert Address.parse(text, quoted=True) == Address(table=text)


def test_quotes_win_over_the_legacy_rule():
    """And over the '@' that would end the name."""
    assert Address.parse('"t@ble"', legacy=True, quoted=True) == Address(table="t@ble")
    assert Address.parse('"t@ble"', legacy=True) == Address(table='"t')


def naming(**more):
    return Naming(default_schema="dbo", **more)


QUEUE = {"queue_schemas": {"orders": "by_queue"}}
ENDPOINT = {"endpoint_schemas": {"orders": "by_endpoint"}}


@pytest.mark.parametrize(
    "address, settings, schema",
    [
        ("orders", {}, "dbo"),
        ("orders@[own]", {}, "own"),
        ("orders", ENDPOINT, "by_endpoint"),
        ("orders@[own]", ENDPOINT, "by_endpoint"),
        ("orders", QUEUE, "by_queue"),
        ("orders@[own]", QUEUE | ENDPOINT, "by_queue"),
        ("ORDERS@[own]", QUEUE, "by_queue"),
        ("invoices@[own]", QUEUE | ENDPOINT, "own"),
        ("invoices", QUEUE | ENDPOINT, "dbo"),
        ("orders@[own]", {"legacy_addresses": True}, "dbo"),
        ("orders@[own]", {"legacy_addresses": True} | ENDPOINT, "by_endpoint"),
        ('"own"."orders"', {"quoted_addresses": True}, "own"),
    ],
)
def test_the_first_setting_found_names_the_schema(address, settings, schema):
    """That of the queue, of the endpoint, the address, the default."""
    found = naming(**settings).table(address)
    assert (found.table.lower(), found.schema, found.catalog) == (
        "invoices" if "invoices" in address else "orders",
        schema,
        None,
    )


def test_a_catalog_comes_along():
    assert naming().table("t@[]@[cat]") == Table(table="t", schema="dbo", catalog="cat")
    assert str(naming().table("t@[]@[cat]")) == "t@[dbo]@[cat]"


@pytest.mark.parametrize(
    "table, tsql, plpgsql",
    [
        (Table(table="orders", schema="dbo"), "[dbo].[orders]", '"dbo"."orders"'),
        (Table(table='or]d"ers', schema="s", catalog="c"), '[c].[s].[or]]d"ers]', '"c"."s"."or]d""ers"'),
        (
            Table(table="x]; DROP TABLE y --", schema='s"; --'),
            '[s"; --].[x]]; DROP TABLE y --]',
            '"s""; --"."x]; DROP TABLE y --"',
        ),
    ],
)
def test_names_reach_sql_only_quoted(table, tsql, plpgsql):
    assert (SQLSERVER.table(table), POSTGRESQL.table(table)) == (tsql, plpgsql)


TABLES = [
    Table(table="orders", schema="dbo"),
    Table(table="bill@ing", schema="dbo"),
    Table(table="bill@ing", schema="d@o", catalog="sh]op"),
    Table(table="{", schema="public"),
    Table(table='{"table": "x"}', schema="public"),
    Table(table="orders", schema=""),
    Table(table="orders", schema="dbo", catalog="shop"),
    Table(table="or\"d'ers", schema='a"b'),
]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_s_text_is_read_as_the_same_table(table):
    assert Table.from_text(table.to_text()) == table


@pytest.mark.parametrize("table", [replace(each, catalog="sh]@p") for each in TABLES if each.schema])
def test_a_table_s_full_address_is_read_as_the_same_table(table):
    assert Table.from_text(str(table)) == table


def test_a_plain_table_s_text_is_its_address():
    assert Table(table="orders", schema="dbo", catalog="shop").to_text() == "orders@[dbo]@[shop]"
    assert Table.from_text("orders@[dbo]") == Table(table="orders", schema="dbo")


@pytest.mark.parametrize("table", [each for each in TABLES if each.schema])
def test_a_table_s_address_is_read_as_that_table(table):
    naming = Naming(default_schema="public", quoted_addresses=True)
    assert replace(naming.table(table.to_address(quoted=True)), catalog=None) == replace(table, catalog=None)


#: The options by which an address is read, then the address, its queue, and where it leads.
WAYS = [
    (POSTGRESQL, {}, "orders", "orders", "own"),
    (POSTGRESQL, {}, '"public"."orders"', "orders", "own"),
    (POSTGRESQL, {}, "orders@public", '"orders"', "own"),
    (POSTGRESQL, {}, "orders@[public]@[home]", "orders", "own"),
    (POSTGRESQL, {}, "orders", "orders@[public]@[home]", "own"),
    (POSTGRESQL, {}, "orders@[public]@[other]", "orders", "home"),
    (POSTGRESQL, {}, "orders@[public]@[HOME]", "orders", "home"),
    (POSTGRESQL, {}, "Orders", "orders", "home"),
    (POSTGRESQL, {}, "orders@[Public]", "orders", "home"),
    (POSTGRESQL, {}, "billing", "orders", "home"),
    (POSTGRESQL, {}, "a@b@c@d", "a@b@c", "nowhere"),
    (POSTGRESQL, {}, "a@b@c@d", "a@b@c@d", "own"),
    (POSTGRESQL, {}, "", "orders", "nowhere"),
    (POSTGRESQL, {"defaultSchema": "sales"}, "orders", "orders@[sales]", "own"),
    (POSTGRESQL, {"defaultSchema": "sales"}, "orders", "orders@[public]", "home"),
    (POSTGRESQL, {"queue.orders.schema": "sales"}, '"public"."orders"', "orders", "own"),
    (POSTGRESQL, {"endpoint.ord*.schema": "sales"}, '"public"."orders"', "orders", "own"),
    (POSTGRESQL, {"legacyAddresses": "true"}, "orders@MACHINE@[@", "orders", "own"),
    (POSTGRESQL, {"legacyAddresses": "true"}, '"sales"."orders"', "orders", "home"),
    (POSTGRESQL, {"endpoint.bill*.url": "there"}, "billing", "orders", "away"),
    (POSTGRESQL, {"endpoint.bill*.url": "there"}, '"x"."Billing.7"', "orders", "away"),
    (POSTGRESQL, {"endpoint.bill*.url": "there"}, "a@b@c@d", "orders", "nowhere"),
    (POSTGRESQL, {"endpoint.*.url": "there"}, "orders", "orders", "own"),
    (POSTGRESQL, {"endpoint.*.url": "there"}, "Orders", "orders", "away"),
    (POSTGRESQL, {"endpoint.*.url": "there"}, "orders@[public]@[other]", "orders", "away"),
    (POSTGRESQL, {"endpoint.*.url": "there", "endpoint.billing.url": "here"}, "billing", "orders", "home"),
    (SQLSERVER, {}, "ORDERS@[DBO]@[HOME]", "orders", "own"),
    (SQLSERVER, {}, "orders@[dbo]@[other]", "orders", "home"),
    (SQLSERVER, {}, '"orders"', "orders", "home"),
    (SQLSERVER, {"legacyAddresses": "true"}, "orders@MACHINE", "orders@[dbo]", "own"),
    (SQLSERVER, {"endpoint.billing.url": "there"}, "BILLING@[dbo]@[home]", "orders", "away"),
]


def naming_of(dialect, options):
    return ConnectionOptions.parse({"url": "here", **options}).naming(dialect)


@pytest.mark.parametrize("dialect, options, address, queue, way", WAYS)
def test_an_address_leads_to_its_queue_beside_it_away_or_nowhere(dialect, options, address, queue, way):
    assert naming_of(dialect, options).way(address, queue, "home") == way


@pytest.mark.parametrize("dialect, options, address, queue, way", WAYS)
def test_without_the_options_no_message_for_the_own_queue_is_kept_from_its_handler(
    dialect, options, address, queue, way
):
    assert way != "own" or not goes_elsewhere({FORWARD_DESTINATION: address}, queue)


def test_without_the_name_of_the_database_an_address_may_lie_in_any():
    naming = naming_of(SQLSERVER, {})
    assert naming.way("orders@[dbo]@[shop]", "orders") == "own"
    assert naming.way("orders@[dbo]@[shop]", "orders@[dbo]@[other]") == "home"


def test_a_table_whose_name_no_address_can_have_is_known_by_its_parts():
    table = Table(table="or@ders", schema="public")
    assert naming_of(POSTGRESQL, {}).way('"or@ders"', table) == "own"


def test_an_address_in_another_database_is_not_written_without_it():
    naming = naming_of(POSTGRESQL, {})
    assert naming.written("orders@[public]@[other]") == ("orders@[public]@[other]", "orders")
    assert naming.written("orders") == ('"public"."orders"', "orders")
