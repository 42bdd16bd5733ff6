"""A site's own view of its columns: what is unusual even here, whatever the other sites have sent."""
