-- Ranks whose device work takes longer than that of their peers: by how many robust deviations, in each window.
-- The deviation is at least a thousandth of the median, so that no rank is named where all are alike.
-- The columns of middle are qualified, because ClickHouse takes a bare n for the aggregate of that name.
WITH beside AS (
    SELECT p.run AS run, p.win AS win, q.comm AS comm, q.role AS role, p.rank AS rank, p.host AS host,
           p.steps AS steps, p.first_step AS first_step, p.mean_ns AS mean_ns
    FROM pace p JOIN peers q ON p.run = q.run AND p.rank = q.rank
),
middle AS (
    SELECT p.run AS run, p.win AS win, p.comm AS comm, p.role AS role, AVG(p.mean_ns) AS median_ns, MAX(p.n) AS n
    FROM (
        SELECT run, win, comm, role, mean_ns,
               ROW_NUMBER() OVER (PARTITION BY run, win, comm, role ORDER BY mean_ns) AS i,
               COUNT(*) OVER (PARTITION BY run, win, comm, role) AS n
        FROM beside
    ) p
    WHERE 2 * p.i >= p.n AND 2 * p.i <= p.n + 2
    GROUP BY p.run, p.win, p.comm, p.role
),
away AS (
    SELECT p.run AS run, p.win AS win, p.comm AS comm, p.role AS role, p.rank AS rank, p.host AS host,
           p.steps AS steps, p.first_step AS first_step, p.mean_ns AS mean_ns, m.median_ns AS median_ns, m.n AS n,
           CASE WHEN p.mean_ns >= m.median_ns THEN p.mean_ns - m.median_ns ELSE m.median_ns - p.mean_ns END AS away_ns
    FROM beside p JOIN middle m ON p.run = m.run AND p.win = m.win AND p.comm = m.comm AND p.role = m.role
),
spread AS (
    SELECT run, win, comm, role, AVG(away_ns) AS mad_ns
    FROM (
        SELECT run, win, comm, role, away_ns,
               ROW_NUMBER() OVER (PARTITION BY run, win, comm, role ORDER BY away_ns) AS i,
               COUNT(*) OVER (PARTITION BY run, win, comm, role) AS n
        FROM away
    ) d
    WHERE 2 * i >= n AND 2 * i <= n + 2
    GROUP BY run, win, comm, role
)
SELECT a.run AS run, a.win AS win, a.rank AS rank, a.host AS host, a.comm AS comm, a.role AS role, a.n AS peers,
       a.steps AS steps, a.first_step AS first_step, a.mean_ns AS mean_ns, a.median_ns AS median_ns,
       (a.mean_ns - a.median_ns)
           / (CASE WHEN 1.4826 * s.mad_ns > 0.001 * a.median_ns THEN 1.4826 * s.mad_ns
                   WHEN a.median_ns > 0 THEN 0.001 * a.median_ns ELSE 1.0 END) AS z
FROM away a JOIN spread s ON a.run = s.run AND a.win = s.win AND a.comm = s.comm AND a.role = s.role
WHERE a.mean_ns > a.median_ns
