"""Speed, as ratios within one run: a busy machine slows both sides.

filters.py      one filter against its peers, and the store's own rows: tools/bench.py
sql.py          sessions with guards against sessions without: tools/bench_sql.py
rebuild.py      a rebuild against a bare SELECT: tools/bench_rebuild.py
measure.py      contestants take turns; the row that a comparison ends in
peers.py        the filters a Python user could pick instead
peer_rows.py    rows against the peers
store_rows.py   rows about the store: opening, durable adds, threads, 10^8 keys
stages.py       what stages cost: --stages
profile.py      the steps behind the rows: --profile
report.py       rows as a table, JSON, a picture
"""
