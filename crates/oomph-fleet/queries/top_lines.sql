-- Which lines of programs run out of memory most often?
WITH by_model AS (
    SELECT
        site_file,
        site_line,
        model,
        count(*) AS failures,
        max(requested_bytes) AS requested_bytes,
        max(day) AS last_day
    FROM failures
    WHERE is_gpu_oom AND NOT survived AND site_file IS NOT NULL
    GROUP BY site_file, site_line, model
)
SELECT
    site_file,
    site_line,
    cast(sum(failures) AS bigint) AS failures,
    count(model) AS models,
    max(requested_bytes) AS most_requested_bytes,
    max(last_day) AS last_day
FROM by_model
GROUP BY site_file, site_line
ORDER BY failures DESC, site_file, site_line
LIMIT 20
