"""The site's matrix: readers by format, and the facts that the review of a spec needs."""
