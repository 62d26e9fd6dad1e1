-- The collectives that the suspects began in their steps. Needs the table of suspect_steps.
SELECT x.run AS run, x.rank AS rank, x.step AS step, c.begin_ns AS begin_ns, c.dur_ns AS dur_ns
FROM suspect_steps x
JOIN collectives c ON x.run = c.run AND x.rank = c.rank
    AND x.begin_ns <= c.begin_ns AND c.begin_ns < x.begin_ns + x.wall_ns
WHERE c.why = 'sample'
