"""A node that answers with a tensor of the shape it was sent."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def answer(message: Message, context: Context) -> Message:
    """Other numbers of the same shape: Flower does not send again what it has, and a real update is always new."""
    (sent,) = message.content["tensor"].to_numpy_ndarrays()
    update = np.random.default_rng().standard_normal(sent.shape)
    return Message(content=RecordDict({"tensor": ArrayRecord([update])}), reply_to=message)
