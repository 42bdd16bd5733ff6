"""The result of a finished run at the site: one directory per run, written atomically."""
