"""What is found at a site, for its people: why an entry may be wrong, and what was decided about it."""
