"""Outcomes in neighbouring runtimes: through a side channel where there is one, else in an envelope."""
