"""ClickHouse in this process over the folder: `pip install chdb`, then `python ranks/engines/on_clickhouse.py DIR late`."""

import json
import os

from chdb.session import Session

import questions

# As other engines have it: a row without a partner has nulls.
SETTINGS = "SETTINGS join_use_nulls = 1, output_format_json_quote_64bit_integers = 0"


def source(folder, table):
    """The files of a table, in a folder or in a bucket: `s3://BUCKET/FOLDER`, with the server and the keys of the environment, as AWS's tools have them."""
    if not str(folder).startswith("s3://"):
        return f"file('{folder}/{table}/**/*.parquet', Parquet)"
    server = os.environ.get("AWS_ENDPOINT_URL", "https://s3.amazonaws.com").rstrip("/")
    files = f"{server}/{str(folder).removeprefix('s3://').rstrip('/')}/{table}/**/*.parquet"
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        return f"s3('{files}', NOSIGN, 'Parquet')"
    return f"s3('{files}', '{os.environ['AWS_ACCESS_KEY_ID']}', '{os.environ['AWS_SECRET_ACCESS_KEY']}', 'Parquet')"


def connect(folder, tables):
    session = Session()
    for table in tables:
        # From the path: ClickHouse would take a run called 1234 for a number.
        window = "" if table == "clocks" else ", toInt64(extract(_path, 'win=(-?[0-9]+)')) AS win"
        session.query(
            f"CREATE VIEW {table}_files AS SELECT *, extract(_path, 'run=([^/]+)') AS run{window} "
            f"FROM {source(folder, table)} "
            "SETTINGS use_hive_partitioning = 0, schema_inference_make_columns_nullable = 'auto', schema_inference_mode = 'union'"
        )

    def ask(sql):
        answer = json.loads(str(session.query(f"{sql} {SETTINGS}", "JSONCompact")))
        return [column["name"] for column in answer["meta"]], answer["data"]

    return lambda name, sql: session.query(f"CREATE VIEW {name} AS {sql}"), ask


if __name__ == "__main__":
    questions.main("ClickHouse", connect)
