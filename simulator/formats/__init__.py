"""What others write and read: recipes of frameworks, measured samples, topologies of machines, traces and logs."""
