"""What `dcfpca init`, `up` and `down` do: configurations with comments, and a consortium on one machine."""
