"""How a connection to SQL Server logs in, and what its errors mean.

Connections are encrypted by TLS unless the url says otherwise, and then the log warns.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

from sqlqueue_spark.engines.connection import Target
from sqlqueue_spark.engines.driver_errors import DriverError, Kind, fail
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.engines.sqlserver.odbc_driver import NEWEST, Driver, driver_of
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.plain_text import logger, warn_once
from sqlqueue_spark.version import pip_install

log = logger(__name__)

#: A serverless database that was paused may keep a login waiting:
#: https://learn.microsoft.com/azure/azure-sql/database/serverless-tier-overview#connectivity
CONNECT_SECONDS = 30

# https://learn.microsoft.com/sql/connect/odbc/using-azure-active-directory
_SQL_COPT_SS_ACCESS_TOKEN = 1256
_LOGINS = ("UID", "PWD", "Authentication", "Trusted_Connection")


@dataclass(frozen=True, kw_only=True)
class Login:
    """What a connection is opened with: connection string, driver, and where it leads, with its token."""

    text: OdbcString
    driver: Driver | None
    target: Target

    @classmethod
    def of(cls, target: Target, installed: Sequence[str]) -> Self:
        """The login as it is now; each call asks for a new token.

        :param installed: the drivers that the driver manager knows.
        :raises ConfigurationError: there are two logins, or there is no driver, or the url cannot be read.
        """
        text = OdbcString.of(target.url)
        driver = driver_of(text, installed)
        target = target.with_token()
        beside = [name for name in _LOGINS if text.get(name) is not None] + ["user"] * bool(target.user)
        # The driver refuses it too, but in words that name neither.
        if target.access_token is not None and beside:
            raise ConfigurationError(
                f"Both a Microsoft Entra token and {beside[0]} are given, and only one of them can be the "
                "login; drop one."
            )
        if driver is not None:
            _warn(driver, text)
            tls = {} if driver.origin == "named" else tls_by_default(driver)
            text = text.completed({"Driver": driver.name, **tls})
        text = text.replaced({"UID": target.user, "PWD": target.password})
        return cls(text=text.completed({"APP": "sqlqueue_spark"}), driver=driver, target=target)

    @property
    def attributes(self) -> Mapping[int, bytes]:
        """The token as Microsoft's driver takes it: its length, then the token in UTF-16."""
        if self.target.access_token is None:
            return {}
        encoded = self.target.access_token.encode("utf-16-le")
        return {_SQL_COPT_SS_ACCESS_TOKEN: struct.pack(f"<i{len(encoded)}s", len(encoded), encoded)}


def session(target: Target) -> str:
    return SQLSERVER.statement("session").with_numbers({"lock_timeout": target.timeouts[0]})


def explain(
    cause: BaseException, said: DriverError, target: Target, doing: str, *, connecting: bool
) -> NoReturn:
    """Raise the package's error for a driver's.

    :param connecting: whether we are just connecting; a lost connection or a timeout then means that no
        database answers.
    """
    kind = SQLSERVER.kind(said)
    if connecting and kind in (Kind.CONNECTION_LOST, Kind.TIMED_OUT):
        kind = Kind.NOT_REACHED
    elif connecting and kind is Kind.GAVE_WAY:  # it is throttled
        kind = Kind.NOT_READY
    elif kind is Kind.LOGIN_REFUSED and target.by_token:
        kind = Kind.TOKEN_REFUSED
    given = OdbcString.of(target.url)
    user = target.user or given.get("UID") or ""
    if kind is Kind.LOGIN_REFUSED and user and not (target.password or given.get("PWD")):
        kind = Kind.NO_PASSWORD
    secrets = (target.password, target.access_token, given.get("PWD"))
    fail(
        cause,
        kind,
        re.sub(r"^(\[[^\]]*\]\s*)+", "", said.message),
        doing,
        where=f"{given.get('Server') or '?'}/{given.get('Database') or ''}",
        user=user,
        secrets=[each for each in secrets if each],
    )


def tls_by_default(driver: Driver) -> Mapping[str, str]:
    """The keywords that make this driver encrypt. Driver 18 does so without any."""
    if driver.is_freetds:
        return {"Encryption": "require", "TDS_Version": "7.4"}
    return {} if driver.version == NEWEST else {"Encrypt": "yes"}


def _warn(driver: Driver, text: OdbcString) -> None:
    """Warn, once in a process, of a connection that works and should be otherwise."""
    if driver.is_freetds:
        warn_once(log, "The driver is FreeTDS, which sends nothing as arrays and knows no Microsoft Entra "
                       "login; better is Microsoft's: %s.", pip_install("mssql"))  # fmt: skip
    if (text.get("Encrypt") or "").lower() in ("no", "false", "optional"):
        warn_once(log, "The url says Encrypt=no: messages and password cross the network in the clear.")
    if (text.get("TrustServerCertificate") or "").lower() in ("yes", "true"):
        warn_once(log, "The url says TrustServerCertificate=yes: any machine on the way can pose as the "
                       "server.")  # fmt: skip
