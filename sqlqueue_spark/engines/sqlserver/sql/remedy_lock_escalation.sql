-- remedy_lock_escalation.sql · SQL Server · a remedy for people: the default, with which large statements cost little memory
ALTER TABLE {queue} SET (LOCK_ESCALATION = TABLE);
