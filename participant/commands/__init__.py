"""What the subcommands of `dcfpca-participant` do and print; `participant.main` declares them."""
