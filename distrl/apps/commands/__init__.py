"""The command line: a file for each command or group of commands.

`main.py` joins them, and `printing.py` prints all that they print, so that no text of a file or of Redis commands the
terminal. A command reads its arguments, calls one function of another package and shows the result; what it does lies
in that package. Nothing here imports a numeric framework, and only `__main__.py` imports this package.
"""
