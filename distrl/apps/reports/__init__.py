"""Reports: curves, statistics, pictures and HTML pages of finished and live runs.

`distrl plot`, `distrl report`, the dashboard's charts, sweeps and `distrl.load_run` use it. It reads run directories
through `runs/`. Nothing here talks to Redis or serves a page.
"""
