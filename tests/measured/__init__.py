"""What was measured on GPUs outside the suite: whole training steps, as truth for predictions."""
