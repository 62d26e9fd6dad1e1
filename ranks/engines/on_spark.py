"""Spark in this process over the folder: `pip install pyspark` and Java 17, then `python ranks/engines/on_spark.py DIR late`."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import questions


def connect(folder, tables):
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("warpline-ranks")
        # A run called 1234 is a text too.
        .config("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for table in tables:
        rows = spark.read.option("mergeSchema", "true").parquet(f"{folder}/{table}")
        if table != "clocks":
            rows = rows.withColumn("win", col("win").cast("bigint"))
        rows.createOrReplaceTempView(f"{table}_files")

    def ask(sql):
        answer = spark.sql(sql)
        return answer.columns, [tuple(row) for row in answer.collect()]

    def define(name, sql):
        spark.sql(f"CREATE TEMPORARY VIEW {name} AS {sql}")
        # Views build on each other: each is answered once, when a query names it. Tables stay in their files.
        if name not in questions.TABLES:
            spark.catalog.cacheTable(name)

    return define, ask


if __name__ == "__main__":
    questions.main("Spark", connect)
