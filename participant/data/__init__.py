"""Readers of the site's local matrix."""
