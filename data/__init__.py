"""Catalogues that ship with runcast: hardware, models, profiles, scenarios. Data only; every number has its source."""
