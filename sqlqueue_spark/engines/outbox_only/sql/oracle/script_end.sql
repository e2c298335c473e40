-- script_end.sql · Oracle · how a script that creates one table ends: SQL*Plus runs the block
/
