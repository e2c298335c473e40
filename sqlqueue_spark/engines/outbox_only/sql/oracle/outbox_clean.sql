-- outbox_clean.sql · Oracle · forgets some message ids that are old enough
-- in: seconds that an id is kept     out: number of rows
-- Never rows that are not dispatched: a .NET endpoint has yet to send what they hold. Old by the database's clock. No
-- DELETE steps over locked rows here, so a second cleanup waits for the first; senders insert other rows and wait for
-- neither.
DELETE FROM {outbox}
WHERE Dispatched = 1
  AND DispatchedAt < SYS_EXTRACT_UTC(SYSTIMESTAMP) - NUMTODSINTERVAL(?, 'SECOND')
  AND ROWNUM <= 4000
