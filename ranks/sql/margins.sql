-- When the last rank but one came to each listed collective. Needs the table listed: run, comm, seq, and last_ns, when the last one came.
SELECT l.run AS run, l.comm AS comm, l.seq AS seq, MAX(a.at_ns) AS second_ns
FROM listed l
JOIN aligned a ON l.run = a.run AND l.comm = a.comm AND l.seq = a.seq
WHERE a.at_ns < l.last_ns
GROUP BY l.run, l.comm, l.seq
