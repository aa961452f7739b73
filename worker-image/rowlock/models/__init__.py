"""Clients of models: `OpenAIChat`, for every server that speaks the chat-completions API.

From the outside in: `openai` is what authors name;
`body` writes the request and `endpoint` says where it goes, with which key;
`forms` says how a typed answer is asked for, `strict` in which schema;
`hearing` makes a turn of what comes back (`events`, `chunks`), `faults` an error;
`pool` keeps connections, `connection` is one of them, and `tick` says when each is read.

Why the connection is our own: a thousand streams of 70 tokens a second wake a process
70,000 times a second when each token is read as it comes.
Here a socket is read at most once a tick, and the kernel gathers what comes in between.
"""

from rowlock.models.openai import ModelTimeouts, OpenAIChat, Prices

__all__ = ["ModelTimeouts", "OpenAIChat", "Prices"]
