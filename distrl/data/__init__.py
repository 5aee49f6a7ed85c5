"""Recorded episodes: data sets of other programs and of distrl, as learners, estimators and people read them.

    episodes         what all formats have: lengths, spaces, and one episode after the other
    minari_sets      Minari's data sets, read and written
    tables           CSV and Parquet files
    opening          a data set by its name, or a part of it
    recorded_vector  a vector environment that plays recorded episodes
    playing          unrolls of recorded episodes, preprocessed as an actor's
    filling          the replay memory of a run that learns from data
    keyboard         actions that a person types
    recording        episodes that a policy plays, into a data set
    unroll_episodes  episodes of the unrolls that actors ship
    run_recording    what the actors of a training do, into a data set
    summary          what is in a data set, and what is wrong with it

Roles and commands use it. Formats know nothing of algorithms, and algorithms nothing of formats.
"""
