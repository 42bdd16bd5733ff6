"""The paper's figures: `python benchmarks/paper.py --out DIR [--figure NAME] [--quick]` is `dcfpca bench paper …`."""

from __future__ import annotations

import sys

from dcfpca.cli.main import main

if __name__ == "__main__":
    main(["bench", "paper", *sys.argv[1:]])
