"""DuckDB over the folder: `pip install duckdb`, then `python ranks/engines/on_duckdb.py DIR late`."""

import duckdb

import questions


def connect(folder, tables):
    database = duckdb.connect()
    for table in tables:
        # Types are stated: a run called 1234 is a text too.
        types = "{'run': VARCHAR}" if table == "clocks" else "{'run': VARCHAR, 'win': BIGINT}"
        database.execute(
            f"CREATE VIEW {table}_files AS SELECT * FROM read_parquet('{folder}/{table}/**/*.parquet', "
            f"union_by_name = true, hive_partitioning = true, hive_types = {types})"
        )

    def ask(sql):
        answer = database.execute(sql)
        return [column[0] for column in answer.description], answer.fetchall()

    return lambda name, sql: database.execute(f"CREATE VIEW {name} AS {sql}"), ask


if __name__ == "__main__":
    questions.main("DuckDB", connect)
