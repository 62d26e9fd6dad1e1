-- The collectives for which margins says when the last rank but one came: all.
-- `warpline-ranks report` puts a table in its place, with those that it shows.
SELECT run, comm, seq, last_ns
FROM late
