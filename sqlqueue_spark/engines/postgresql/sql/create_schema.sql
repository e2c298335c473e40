-- create_schema.sql · PostgreSQL · a remedy for people: the schema that an address names
CREATE SCHEMA {schema}
