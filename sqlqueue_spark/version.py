"""The version of this package: what it writes into outbox tables as well. And what it needs of others."""

__version__ = "0.3.0"


def requirements(extra: str) -> list[str]:
    """The packages of an extra, as pip takes them; none where the files are here without metadata."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("sqlqueue_spark") or []
    except PackageNotFoundError:
        return []
    parts = (line.replace('"', "'").partition(";") for line in lines)
    return [package.strip() for package, _, condition in parts if f"extra == '{extra}'" in condition]


def pip_install(extra: str) -> str:
    """The command that installs the packages of an extra, each by its own name.

    It never has the name of this package, which is on no index: the first who took it there would run code.
    """
    if not (packages := requirements(extra)):
        return f"pip install '.[{extra}]' in a clone of this package"
    return " ".join(["pip install", *(f"'{each}'" for each in packages)])
