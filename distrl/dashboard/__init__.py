"""A web page that shows live and finished runs and controls live ones."""
