SELECT current_database()::text
