"""The aggregator's side: send, receive, add, and note the seconds of every round."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for all nodes, then go round."""
    config = context.run_config
    while len(list(grid.get_node_ids())) < config["nodes"]:
        time.sleep(0.5)
    nodes = list(grid.get_node_ids())
    tensor = np.random.default_rng(0).standard_normal((config["rows"], config["rank"]))
    seconds = []
    for _ in range(config["rounds"]):
        began = time.monotonic()
        record = RecordDict({"tensor": ArrayRecord([tensor])})
        messages = [Message(content=record, message_type="train", dst_node_id=node) for node in nodes]
        replies = list(grid.send_and_receive(messages, timeout=600))
        answers = [reply.content["tensor"].to_numpy_ndarrays()[0] for reply in replies if not reply.has_error()]
        assert len(answers) == len(nodes), f"{len(nodes) - len(answers)} nodes did not answer"
        tensor = np.mean(answers, axis=0)
        seconds.append(time.monotonic() - began)
    partial = Path(config["out"]).with_suffix(".partial")
    partial.write_text(json.dumps(seconds))
    partial.rename(config["out"])
