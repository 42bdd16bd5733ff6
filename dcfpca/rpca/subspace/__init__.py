"""The default method: federated orthogonal iteration with firm thresholds."""
