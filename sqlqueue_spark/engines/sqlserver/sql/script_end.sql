-- script_end.sql · SQL Server · how a script that creates one table ends
-- GO ends the batch, so that the next table's variables may have the same names.
END;
COMMIT TRANSACTION;
GO
