"""Recorded episodes: data sets of other programs and of distrl, as learners, estimators and people read them.

    episodes         what all formats have: lengths, spaces, and one episode after the other
    minari_sets      Minari's data sets, read and written
    hdf5_episodes    episodes in the HDF5 files of these
    tables           CSV and Parquet files
    opening          a data set by its name, or a part of it
    recorded_vector  a vector environment that plays recorded episodes
    playing          unrolls of recorded episodes, preprocessed as an actor's
    filling          the replay memory of a run that learns from data
    keyboard         actions that a person types
    recording        episodes that a policy plays, into a data set
    unroll_episodes  episodes of the unrolls that actors ship
    unroll_recording  these episodes, into a data set
    run_recording    that data set of a training, beside it or in its process
    recording_process  the process that records beside a training
    summary          what is in a data set, and what is wrong with it

Roles and commands use it. Formats know nothing of algorithms, and algorithms nothing of formats.
"""
