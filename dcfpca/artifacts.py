"""The files of a site's reconstruction that an operator may ask for."""

ARTIFACTS = ("L.npy", "S.npz")
