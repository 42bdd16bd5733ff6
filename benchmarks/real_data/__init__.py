"""Real data: moving cars on a motorway and the metrics of twelve servers."""
