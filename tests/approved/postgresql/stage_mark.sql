SELECT mark FROM "public"."billing.Outgoing" WHERE task = '' FOR UPDATE
