SELECT headers FROM "public"."billing.Outgoing" WHERE task = '' FOR UPDATE
