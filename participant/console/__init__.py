"""`dcfpca-participant console`: a page on loopback for the people of one site, who approve runs and decide findings."""
