-- The collectives of each suspect in its step. Needs the table of suspect_steps.
SELECT DISTINCT x.run AS run, x.rank AS rank, x.step AS step, c.comm AS comm, c.seq AS seq, c.kind AS kind,
       c.bytes AS bytes, c.begin_ns AS begin_ns, c.dur_ns AS dur_ns,
       CASE WHEN 20 * COALESCE(c.end_early_ns, 0) > c.dur_ns THEN c.end_early_ns ELSE 0 END AS early_ns
FROM suspect_steps x
JOIN collectives c ON x.run = c.run AND x.rank = c.rank
    AND x.begin_ns <= c.begin_ns AND c.begin_ns < x.begin_ns + x.wall_ns
WHERE c.why = 'sample'
