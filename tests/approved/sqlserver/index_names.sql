SELECT i.name FROM [shop].sys.indexes AS i WHERE i.object_id = ? AND i.name IS NOT NULL
