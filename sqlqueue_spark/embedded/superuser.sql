-- Gives the superuser a password, of which the server learns only what it checks one with.
ALTER ROLE postgres PASSWORD '{verifier}'
