"""The paper's figures, tables and theorems, measured here, with the published numbers beside them.

W. Chu, Distributed Robust Principal Component Analysis, arXiv 2207.11669. One module per figure: a `Plan` says how
large, `measure` yields the figure's cases one by one, and `plotting` draws them.
"""
