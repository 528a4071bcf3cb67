"""A program without bloomstore: it writes rows and prints the ids that are committed.

    python -m tests.sql.support.outbox_writer CONNINFO NUMBER

Transactions of several such writers overlap, and end in another order than they began in.
"""

from __future__ import annotations

import random
import sys
import time
from itertools import count

import psycopg


def main(conninfo: str, number: int) -> None:
    random.seed(number)
    with psycopg.connect(conninfo) as connection, connection.cursor() as cursor:
        for turn in count(number * 100_000_000):
            cursor.execute("INSERT INTO parcels (id) VALUES (%s)", (turn,))
            time.sleep(random.choice((0, 0, 0.001, 0.004, 0.05)))
            connection.commit()
            print(turn, flush=True)
            if not sys.stdin.readline():  # goes on when the answer was compared
                return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
