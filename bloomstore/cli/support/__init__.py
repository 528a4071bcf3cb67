"""Options and output that several commands share.

arguments.py       numbers as people write them, the store, `--json`
family_options.py  a spec from options
inputs.py          keys from arguments, files and standard input
sources.py         the source of a rebuild from options
numbers.py         numbers as people read them
tables.py          tables and lists of facts
documents.py       JSON
progress.py        progress bars
plot.py            pictures of a growth plan
"""
