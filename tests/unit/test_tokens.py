"""Tokens are asked of a provider each time, and a provider that fails is named without its words."""

import sys
import types

import pytest

from sqlqueue_spark.engines import tokens
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations


@pytest.fixture
def provider(monkeypatch):
    """A module ``vault`` whose function ``get`` returns what is put there."""
    vault = types.ModuleType("vault")
    monkeypatch.setitem(sys.modules, "vault", vault)
    return vault


@pytest.fixture
def new_process():
    """Azure's credential is made again, as in a new process.

    A process keeps it for ever, and nothing public forgets it: so the test empties the private cache.
    """
    tokens._credential.cache_clear()
    yield
    tokens._credential.cache_clear()


def target(**more):
    return Target.of(ConnectionOptions.parse({"url": "mssql://h/d", **more}))


def refusal(**more):
    with pytest.raises(ConfigurationError) as caught:
        target(**more).with_token()
    return str(caught.value)


def test_a_provider_is_asked_each_time(provider):
    given = iter(
        ["first", types.SimpleNamespace(token="second")]
    )  # azure-identity's have a class of their own
    provider.get = lambda: next(given)
    asked = target(accessTokenProvider="vault:get")
    assert [asked.with_token().access_token for _ in range(2)] == ["first", "second"]
    for given in (target(accessToken="fixed"), target()):
        assert given.with_token() == given


def test_a_failing_provider_is_named(provider):
    """Without its words."""

    def fail():
        raise RuntimeError("hunter2")

    provider.get = fail
    assert refusal(accessTokenProvider="vault:get") == (
        "The accessTokenProvider vault:get failed with RuntimeError; call it by hand to see why."
    )
    with pytest.raises(ConfigurationError) as caught:
        tokens.token_of("vault:get", "")
    assert caught.value.may_pass, "where the database was reached before, it is asked again"


@pytest.mark.parametrize("given, said", [(None, "NoneType"), ("", "str"), (b"token", "bytes")])
def test_what_is_no_token_is_refused(provider, given, said):
    provider.get = lambda: given
    assert refusal(accessTokenProvider="vault:get") == (
        f"The accessTokenProvider vault:get returned {said} instead of a token's text; correct it."
    )


def test_a_provider_that_is_not_there_or_broken_is_said(provider, tmp_path, monkeypatch):
    provider.number = 1
    remedy = "put its module where driver and workers find it, for example with spark-submit --py-files."
    assert refusal(accessTokenProvider="nowhere.at_all:get") == (
        f"The accessTokenProvider nowhere.at_all:get cannot be loaded (No module named 'nowhere'); {remedy}"
    )
    assert refusal(accessTokenProvider="vault:get") == (
        "The accessTokenProvider vault:get cannot be loaded (module 'vault' has no "
        f"attribute 'get'); {remedy}"
    )
    (tmp_path / "broken_vault.py").write_text('raise SystemExit("hunter2")\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert refusal(accessTokenProvider="broken_vault:get") == (
        "The accessTokenProvider broken_vault:get cannot be loaded (SystemExit, in "
        f"{tmp_path}/broken_vault.py, line 1); mend its module."
    )
    assert refusal(accessTokenProvider="vault:number") == (
        "The accessTokenProvider vault:number is no function; name one."
    )


@pytest.mark.parametrize(
    "url, scope",
    [
        ("mssql://h/d", "https://database.windows.net/.default"),
        ("postgresql://h/d", "https://ossrdbms-aad.database.windows.net/.default"),
    ],
)
def test_azure_identity_gets_the_database_s_scope(monkeypatch, new_process, url, scope):
    class DefaultAzureCredential:
        def get_token(self, scope):
            return types.SimpleNamespace(token=f"for {scope}")

    azure = types.ModuleType("azure.identity")
    azure.DefaultAzureCredential = DefaultAzureCredential  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure", types.ModuleType("azure"))
    monkeypatch.setitem(sys.modules, "azure.identity", azure)
    asked = target(url=url, accessTokenProvider="azure-identity")
    assert asked.with_token() == target(url=url, accessToken=f"for {scope}")


def test_missing_azure_identity_has_a_remedy(monkeypatch, new_process):
    monkeypatch.setitem(sys.modules, "azure", None)
    assert refusal(accessTokenProvider="azure-identity").endswith(
        "install it with: pip install azure-identity."
    )


def test_a_token_goes_only_to_its_own_database():
    given = {"url": "mssql://h/d", "queue": "orders", "endpoint": "Sales", "accessTokenProvider": "vault:get"}
    options = SinkOptions.parse({**given, "endpoint.billing.url": "mssql://me:own@other/d"})
    providers = [
        Destinations(options).places.destination(each).target.access_token_provider
        for each in ("orders", "billing")
    ]
    assert providers == ["vault:get", None]


@pytest.mark.parametrize("value", ["tokens", "tokens:", ":get", "a b:c", "os;system:x", "tokens:get()"])
def test_a_token_provider_is_a_function_of_a_module(value):
    with pytest.raises(ConfigurationError) as caught:
        ConnectionOptions.parse({"url": "mssql://h", "accessTokenProvider": value})
    assert str(caught.value) == (
        f"The option accessTokenProvider must be module:function or azure-identity, not {value!r}."
    )


@pytest.mark.parametrize("other", ["password", "accessToken"])
def test_a_token_provider_excludes_another_login(other):
    with pytest.raises(ConfigurationError) as caught:
        ConnectionOptions.parse({"url": "mssql://h", "accessTokenProvider": "a.b:c", other: "hunter2"})
    assert str(caught.value) == (
        f"Both accessTokenProvider and {other} are given, and only one of them can be the login; drop one."
    )


def test_a_token_excludes_a_password():
    with pytest.raises(ConfigurationError) as caught:
        ConnectionOptions.parse({"url": "postgresql://h", "accessToken": "t0ken", "password": "hunter2"})
    assert str(caught.value) == (
        "Both accessToken and password are given, and only one of them can be the login; drop one."
    )


def test_a_token_excludes_a_password_in_the_url_of_postgresql():
    """Which the token had won over without a word; the driver of SQL Server refuses it by itself."""
    for url in ("postgresql://me:hunter2@127.0.0.1:1/d", "postgresql://me@127.0.0.1:1/d?password=hunter2"):
        with pytest.raises(ConfigurationError) as caught:
            connect(Target(url=url, access_token="t0ken"))
        assert str(caught.value) == (
            "Both a Microsoft Entra token and a password in the url are given, and only one of them can be "
            "the login; drop one."
        )
