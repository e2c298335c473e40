"""Microsoft Entra tokens for a login: a provider gives one for each new connection, as tokens expire."""

import functools
from typing import Any

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import AZURE_IDENTITY
from sqlqueue_spark.options.named_module import broken_at, imported


def token_of(provider: str, scope: str) -> str:
    """The token that the provider gives now.

    :param provider: ``module:function`` or ``azure-identity``. A function takes no argument and returns the
        token as text. ``azure-identity`` is the chain of credentials in Microsoft's package of this name,
        which keeps tokens itself.
    :param scope: what the token is to be for; only ``azure-identity`` is told.
    :raises ConfigurationError: there is no such provider, or it failed. The message names the class of the
        provider's error, but not its text, which may hold a secret.
    """
    if provider == AZURE_IDENTITY:
        ask = functools.partial(_credential().get_token, scope)
    else:
        remedy = "put its module where driver and workers find it, for example with spark-submit --py-files."
        ask = _loaded(provider, provider, remedy)
        if not callable(ask):
            raise ConfigurationError(f"The accessTokenProvider {provider} is no function; name one.")
    try:
        given = ask()
    except Exception as error:
        failed = ConfigurationError(
            f"The accessTokenProvider {provider} failed with {type(error).__name__}; call it by hand to see "
            "why."
        )
        failed.may_pass = True
        raise failed from error
    token = getattr(given, "token", given)
    if not isinstance(token, str) or not token:
        raise ConfigurationError(
            f"The accessTokenProvider {provider} returned {type(given).__name__} instead of a token's text; "
            "correct it."
        )
    return token


@functools.cache
def _credential() -> Any:
    """The credential of this process; it keeps tokens as long as they are good."""
    place = "azure.identity:DefaultAzureCredential"
    return _loaded(AZURE_IDENTITY, place, "install it with: pip install azure-identity.")()


def _loaded(provider: str, place: str, remedy: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return getattr(imported(module), name)
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, (ImportError, AttributeError)) else type(error).__name__
        if at := broken_at(error):
            said, remedy = f"{said}{at}", "mend its module."
        raise ConfigurationError(
            f"The accessTokenProvider {provider} cannot be loaded ({said}); {remedy}"
        ) from error
