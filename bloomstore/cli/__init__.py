"""The command line: parsing and printing around calls that Python programs can make too.

main.py    the parser, errors and exit statuses
commands/  one file per command
support/   options, inputs, tables and progress bars that several commands share
"""
