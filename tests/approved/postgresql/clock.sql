SELECT statement_timestamp() AT TIME ZONE 'UTC'
