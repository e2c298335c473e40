-- remedy_space.sql · PostgreSQL · a remedy for people: frees the room of dead rows, beside running receivers
VACUUM {queue};
