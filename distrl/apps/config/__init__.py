"""Settings of applications: sections beside those of `RunConfig`, and the whole tree as users know it.

The command line and `distrl` load with it. The core reads what `RunConfig` declares, and passes further sections on. A
new section is a module here and a field of `Configuration`; nothing here starts or calls an application.
"""
