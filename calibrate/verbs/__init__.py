"""The verbs of this package on the command line, one file per group; each imports what is heavy when it is called."""
