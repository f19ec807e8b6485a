"""An RL cycle: rollouts, training and the weight update between them."""
