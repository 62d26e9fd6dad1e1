-- Late arrivals to follow: the last rank of all came to a collective a millisecond after the one before it, or later still.
-- `warpline-ranks report` puts a table in its place, with what stands out in this run.
SELECT l.run AS run, CAST(l.rank AS BIGINT) AS rank, l.begin_ns AS begin_ns
FROM late l
JOIN margins m ON l.run = m.run AND l.comm = m.comm AND l.seq = m.seq
WHERE l.n = l.size AND l.last_ns - m.second_ns > 1000000
