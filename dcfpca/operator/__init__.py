"""The operator's client: connection settings, calls with deadlines, downloads, exports, and status errors."""
