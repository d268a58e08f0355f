-- Why do jobs run out of memory?
SELECT
    coalesce(cause, 'not known') AS cause,
    count(*) AS failures,
    round(100.0 * count(*) / (SELECT count(*) FROM failures WHERE is_gpu_oom), 2) AS percent,
    count(DISTINCT model) AS models,
    max(shortfall_bytes) AS most_missing_bytes
FROM failures
WHERE is_gpu_oom
GROUP BY coalesce(cause, 'not known')
ORDER BY failures DESC, cause
