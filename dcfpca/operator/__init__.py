"""The operator's client: connection settings, calls with deadlines, downloads, and statuses as sentences."""
