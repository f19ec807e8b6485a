"""Which cases there are, one file per family; each offers `cases(facts)`."""
