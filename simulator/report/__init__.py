"""What reports of every system share."""
