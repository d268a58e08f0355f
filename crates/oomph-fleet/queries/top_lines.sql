-- Which lines of programs run out of memory most often?
SELECT
    site_file,
    site_line,
    count(*) AS failures,
    count(DISTINCT model) AS models,
    max(requested_bytes) AS most_requested_bytes,
    max(day) AS last_day
FROM failures
WHERE is_gpu_oom AND NOT survived AND site_file IS NOT NULL
GROUP BY site_file, site_line
ORDER BY failures DESC, site_file, site_line
LIMIT 20
