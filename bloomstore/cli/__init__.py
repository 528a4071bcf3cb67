"""The command line.

main.py      the parser, errors and exit statuses
commands/    one file per command
support/     options, inputs, tables and progress bars that several commands share
"""
