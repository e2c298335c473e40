SELECT name FROM [shop].sys.schemas WHERE name = ?
