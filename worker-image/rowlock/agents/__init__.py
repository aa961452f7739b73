"""What agent authors write with: `@agent`, `@tool`, `ChatAgent`, `Run` and steps.

From the outside in: `function` and `chat` are the two kinds of agents;
`run` is what their code holds;
`steps` asks the history (`record`) and does what is new (`execution`);
`protocol` is the seam to whatever stores it.
Nothing here knows the engine.
"""
