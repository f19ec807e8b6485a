"""A training step: forward, backward, exchanges of gradients, optimizer."""
