-- The stages of the suspects' steps. Needs the table of suspect_steps. early_ns is by how much the end may be earlier, if that makes dur_ns a bound.
SELECT x.run AS run, x.rank AS rank, x.step AS step, g.idx AS idx, g.name AS name, g.dur_ns AS dur_ns,
       CASE WHEN 20 * COALESCE(g.end_early_ns, 0) > g.dur_ns THEN g.end_early_ns ELSE 0 END AS early_ns
FROM suspect_steps x
JOIN stages g ON x.run = g.run AND x.rank = g.rank AND x.step = g.step AND x.win = g.win
