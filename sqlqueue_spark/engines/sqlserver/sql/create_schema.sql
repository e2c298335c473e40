-- create_schema.sql · SQL Server · a remedy for people: the schema that an address names
CREATE SCHEMA {schema}
