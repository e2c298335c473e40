-- stage_storage.sql · PostgreSQL · stores the messages of a stage as they are
-- A large value is compressed otherwise, which costs more than writing it, and these live for one batch.
ALTER TABLE {stage}
    ALTER COLUMN ids SET STORAGE EXTERNAL,
    ALTER COLUMN expires SET STORAGE EXTERNAL,
    ALTER COLUMN headers SET STORAGE EXTERNAL,
    ALTER COLUMN bodies SET STORAGE EXTERNAL
