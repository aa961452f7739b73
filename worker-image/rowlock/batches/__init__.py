"""Items of batches: the lines that name them, and the agent that reads them from a URI."""
