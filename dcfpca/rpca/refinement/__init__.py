"""What follows the fit on data that no low-rank matrix explains exactly: noise per feature, rank, flags, verdict."""
