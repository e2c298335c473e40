-- grants_database.sql · SQL Server · for people: where the tables lie whose rights follow
-- A right is given in the database of its table, by a name of two parts. Azure SQL has one database a connection: there
-- the script runs in it without this line.
USE {catalog};
