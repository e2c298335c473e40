"""Connections to SQL Server are encrypted by TLS unless the url says otherwise, and then the log warns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlqueue_spark.engines.sqlserver.odbc import NEWEST, Driver, OdbcString

_OFF, _ON = ("no", "false", "optional"), ("yes", "true")


def tls_by_default(driver: Driver) -> Mapping[str, str]:
    """The keywords that make this driver encrypt. Driver 18 does so without any."""
    if driver.is_freetds:
        return {"Encryption": "require", "TDS_Version": "7.4"}
    return {} if driver.version == NEWEST else {"Encrypt": "yes"}


def tls_warnings(text: OdbcString) -> Iterator[str]:
    """What to warn of in a connection string: encryption, or the check of the certificate, is turned off."""
    if (text.get("Encrypt") or "").lower() in _OFF:
        yield "The url says Encrypt=no: messages and password cross the network in the clear."
    if (text.get("TrustServerCertificate") or "").lower() in _ON:
        yield "The url says TrustServerCertificate=yes: any machine on the way can pose as the server."
