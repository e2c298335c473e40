"""Who may log in to the embedded server: who gives a password. The superuser's is in a file of its owner.

Without that, every user of the machine could be the server's superuser, and run programs as the server's
user.
"""

import base64
import hashlib
import hmac
import secrets

SUPERUSER = "postgres"

#: The server's pg_hba.conf. Nothing else lets anybody in.
RULES = """# Written by sqlqueue_spark: nobody gets in without a password, and the server has no local socket.
host all all 127.0.0.1/32 scram-sha-256
"""
#: Many iterations make a login dear, for a password that can be guessed. Ours has 192 random bits.
_ITERATIONS = 1


def verifier(password: str) -> str:
    """What the server keeps of a password, to check it with; it lets no one log in.

    Format: the column rolpassword of https://www.postgresql.org/docs/current/catalog-pg-authid.html, with the keys of
    https://www.rfc-editor.org/rfc/rfc5802#section-3.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = (base64.b64encode(each).decode("ascii") for each in (salt, stored, server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(_ITERATIONS, *encoded)
