"""The command line: parsing and printing around what Python programs can do, too.

main.py    the parser, errors and exit statuses
commands/  one file per command
support/   options, inputs, tables and progress bars that several commands share
"""
