-- script_end.sql · MySQL · how a script that creates one table ends
;
