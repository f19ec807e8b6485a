"""A weight update: new weights from where they are to the ranks of inference engines."""
