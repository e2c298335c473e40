"""SQL Server 2016 and later, and Azure SQL."""
