"""Observers: everything that shows, stores or passes on what happens in a run while it lasts, one module each.

`observer.py` states what `launch/monitor.py` calls. `OBSERVERS` lists the observers of every run, in the order in which
they are called; `distrl.train` puts those of applications, such as trackers, before them. Nothing here reads Redis.
"""

from distrl.observers.evaluations import EvaluationsFile
from distrl.observers.event_log import EventLog
from distrl.observers.metrics_csv import MetricsCsv
from distrl.observers.observer import Observer
from distrl.observers.role_rows import RoleRows
from distrl.observers.tensorboard import TensorBoard
from distrl.observers.terminal import Terminal

OBSERVERS: tuple[type[Observer], ...] = (MetricsCsv, TensorBoard, RoleRows, EvaluationsFile, EventLog, Terminal)
"""The log of events and the terminal end last, as the others report to them until then."""
