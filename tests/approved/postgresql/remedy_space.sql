VACUUM "public"."orders";
