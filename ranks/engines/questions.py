"""What the engines of this folder share: the tables of the data set, the queries of `ranks/sql/`, the command line and the output.

An engine gives `main` a function that opens the folder. It makes a view `TABLE_files` of the files of each table, with all columns that one of
them has, and returns two functions: `define(name, sql)` makes a view, and `ask(sql)` returns the names of the columns and the rows.
"""

import argparse
import json
import pathlib
import re
import sys

SQL = pathlib.Path(__file__).resolve().parent.parent / "sql"

# `clocks` is written by `warpline-ranks clocks DIR --write`: its rows are the same in every window.
TABLES = ["windows", "steps", "stages", "ranges", "sketches", "collectives", "comms", "clocks"]

# Columns that ranks did not always write: they count what is not timed, and are 0 where a file lacks them.
LATER = {
    "windows": ["steps_dropped"],
    "steps": ["uncertain_ns"],
    "stages": ["end_early_ns"],
    "ranges": ["bounded", "bounded_sum_ns", "bounded_least_ns"],
    "collectives": ["end_early_ns"],
}


def present(folder):
    """The tables that the folder has. A URL is not looked at: it has all of them."""
    if "://" in str(folder):
        return TABLES
    found = [table for table in TABLES if any(pathlib.Path(folder, table).glob("run=*/**/*.parquet"))]
    if not found:
        sys.exit(f"`{folder}` has no tables: it should contain `windows/run=ID/win=N/*.parquet`; name the folder of `ranks=DIR`")
    return found


def views():
    """The queries of `ranks/sql/` by name, each behind those that it reads."""
    texts = {path.stem: path.read_text() for path in sorted(SQL.glob("*.sql"))}
    ordered = {}

    def add(name):
        if name in ordered:
            return
        code = re.sub(r"--.*", "", texts[name])
        for read in re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", code):
            if read in texts and read != name:
                add(read)
        ordered[name] = texts[name]

    for name in texts:
        add(name)
    return ordered


def main(engine, connect):
    """Reads the command line, and prints the answer."""
    parser = argparse.ArgumentParser(description=f"Answers the queries of ranks/sql/ with {engine}.")
    parser.add_argument("folder", help="the folder that the setting `ranks=DIR` named")
    parser.add_argument("queries", nargs="+", metavar="query", help="a name of ranks/sql/, or one SELECT")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each row")
    given = parser.parse_args()
    tables = present(given.folder)
    define, ask = connect(given.folder, tables)
    for note in complete(define, ask, tables):
        print(note, file=sys.stderr)
    known = views()
    lacks = {name: missing(name, known, tables) for name in known}
    for name, sql in known.items():
        if not lacks[name]:
            define(name, sql)
    for query in given.queries:
        for table in sorted(lacks.get(query, ())):
            remedy = f": run `warpline-ranks clocks {given.folder} --write` first" if table == "clocks" else ", which this run did not write"
            sys.exit(f"`{query}` needs the table `{table}`{remedy}")
        columns, rows = ask(f"SELECT * FROM {query}" if query in known else query)
        show(columns, rows, given.json, query if len(given.queries) > 1 else None)


def complete(define, ask, tables):
    """Makes the view of each table from that of its files. Returns a note for each table of which files lack columns."""
    notes = []
    for table in tables:
        files = f"{table}_files"
        columns = ask(f"SELECT * FROM {files} LIMIT 0")[0]
        later = LATER.get(table, [])
        chosen = [f"COALESCE(f.{column}, 0) AS {column}" if column in later else f"f.{column} AS {column}" for column in columns]
        chosen += [f"CAST(0 AS BIGINT) AS {column}" for column in later if column not in columns]
        define(table, f"SELECT {', '.join(chosen)} FROM {files} f")
        lacks = [column for column in later if column not in columns or ask(f"SELECT COUNT(*) FROM {files} WHERE {column} IS NULL")[1][0][0] > 0]
        if lacks:
            named = ", ".join(f"`{column}`" for column in lacks)
            notes.append(f"files of the table `{table}` lack {named}: an older version wrote them, and their rows are read as if all ends were timed")
    return notes


def missing(name, known, tables):
    """The tables that a view reads, itself or through others, and that the folder lacks."""
    code = re.sub(r"--.*", "", known[name])
    read = set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", code))
    lacks = read & set(TABLES) - set(tables)
    for other in read & set(known) - {name}:
        lacks |= missing(other, known, tables)
    return lacks


def show(columns, rows, as_json, title):
    """Prints rows: as JSON for programs, or in columns."""
    if as_json:
        for row in rows:
            named = dict(zip(columns, row))
            print(json.dumps({"query": title, "row": named} if title else named))
        return
    cells = [columns] + [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    if title:
        print(f"\n{title}")
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
