-- script_end.sql · PostgreSQL · how a script that creates one table ends
;
COMMIT;
