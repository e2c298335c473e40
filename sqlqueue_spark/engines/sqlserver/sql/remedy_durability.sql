-- remedy_durability.sql · SQL Server · a remedy for people: a commit is answered when it is on the disk, as by default
ALTER DATABASE {catalog} SET DELAYED_DURABILITY = DISABLED;
