"""Tests of what the engines share, with SQLite as the engine: `python3 -m unittest discover -s ranks/engines`."""

import sqlite3
import unittest

import questions


def opened(**tables):
    """An engine over tables whose columns are given, with one row each: 7 in all columns, or null where the name ends with `?`."""
    database = sqlite3.connect(":memory:")
    for table, columns in tables.items():
        names = [column.removesuffix("?") for column in columns]
        database.execute(f"CREATE TABLE {table}_files ({', '.join(f'{name} BIGINT' for name in names)})")
        row = ["NULL" if column.endswith("?") else "7" for column in columns]
        database.execute(f"INSERT INTO {table}_files VALUES ({', '.join(row)})")

    def ask(sql):
        answer = database.execute(sql)
        return [column[0] for column in answer.description], answer.fetchall()

    return lambda name, sql: database.execute(f"CREATE VIEW {name} AS {sql}"), ask


class Tables(unittest.TestCase):
    def test_a_table_of_today_is_as_it_was_written(self):
        define, ask = opened(steps=["rank", "uncertain_ns"], comms=["rank"])
        self.assertEqual(questions.complete(define, ask, ["steps", "comms"]), [])
        self.assertEqual(ask("SELECT rank, uncertain_ns FROM steps"), (["rank", "uncertain_ns"], [(7, 7)]))
        self.assertEqual(ask("SELECT * FROM comms"), (["rank"], [(7,)]))

    def test_a_column_that_no_file_has_is_0_and_is_named(self):
        define, ask = opened(ranges=["rank", "n"], collectives=["rank", "end_early_ns"])
        [note] = questions.complete(define, ask, ["ranges", "collectives"])
        self.assertIn("`ranges` lack `bounded`, `bounded_sum_ns`, `bounded_least_ns`: an older version wrote them", note)
        self.assertEqual(ask("SELECT n, bounded, bounded_sum_ns, bounded_least_ns FROM ranges")[1], [(7, 0, 0, 0)])

    def test_a_column_that_some_files_have_is_0_in_the_others_and_is_named(self):
        define, ask = opened(stages=["rank", "end_early_ns?"])
        [note] = questions.complete(define, ask, ["stages"])
        self.assertIn("`stages` lack `end_early_ns`", note)
        self.assertEqual(ask("SELECT end_early_ns FROM stages")[1], [(0,)])


if __name__ == "__main__":
    unittest.main()
