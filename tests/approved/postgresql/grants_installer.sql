GRANT USAGE ON SCHEMA "sales" TO "shop";
GRANT CREATE ON SCHEMA "sales" TO "shop";
