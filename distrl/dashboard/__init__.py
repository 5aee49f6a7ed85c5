"""A web page beside trainings: what runs do and have done, and hands on those that run."""
