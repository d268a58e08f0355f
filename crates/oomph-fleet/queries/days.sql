-- How many failures are there a day, and of which kinds?
SELECT
    day,
    count(*) AS failures,
    sum(CASE WHEN is_gpu_oom THEN 1 ELSE 0 END) AS gpu_ooms,
    sum(CASE WHEN is_gpu_oom AND survived THEN 1 ELSE 0 END) AS survived,
    sum(CASE WHEN not_oom IN ('killed', 'host-memory', 'container-limit') THEN 1 ELSE 0 END) AS host_memory,
    count(DISTINCT file_id) AS files
FROM failures
GROUP BY day
ORDER BY day DESC
LIMIT 31
