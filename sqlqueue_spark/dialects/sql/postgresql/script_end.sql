-- script_end.sql · PostgreSQL · how a script that creates one queue table ends
;
COMMIT;
