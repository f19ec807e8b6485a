"""What everything uses and nothing of the field: units, the error that a user may cause, files, tables, memos."""
