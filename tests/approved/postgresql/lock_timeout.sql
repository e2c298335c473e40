SELECT set_config('lock_timeout', ?::text, true)
