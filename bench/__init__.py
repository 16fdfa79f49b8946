"""Benchmarks: `python -m bench` measures tidemark against other engines on this machine.

    data       the rows: deterministic, so an oracle can make the very same ones again
    latency    part `query`: how long a question takes, against DuckDB and Spark over the same rows
    load_cost  part `load`: what a load costs, against a plain Delta write of the same rows
    change     part `change`: what it costs that rows leave, against Delta's own DELETE of the same rows
    daily      part `daily`: what analysts ask in a day, against scans by DuckDB
    stores     part `stores`: a warehouse in an object store, against plain Delta tables in it
    accuracy   part `accuracy`: the error at equal memory, against sketches of the whole stream
    frequencies  part `sketches`: size, error and throughput of the frequency sketches
    distinct_sketches  part `distinct-sketches`: the experiments of a thesis about distinct keys in windows
    persistence_sketches  part `persistence-sketches`: its experiments about persistent items
    report     figures beside their targets, and docs/bench/report.md, a section a part

Answers are asserted before they are timed. Targets are ratios within one run, where that is possible.
"""
