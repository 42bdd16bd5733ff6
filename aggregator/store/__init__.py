"""The aggregator's durable state: SQLite, update files and export files."""
