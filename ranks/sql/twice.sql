-- Ranks that two processes claim in one window: their rows cannot be told apart.
SELECT run, rank, COUNT(*) AS windows
FROM (SELECT run, win, rank FROM windows GROUP BY run, win, rank HAVING COUNT(*) > 1) w
GROUP BY run, rank
