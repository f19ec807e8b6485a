"""The verbs of this package on the command line, one file per group: they parse flags, call the API and print.

Each imports what is heavy when it is called.
"""
