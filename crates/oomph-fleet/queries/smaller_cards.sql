-- Which jobs would fit a smaller card, and what does that save?
SELECT
    coalesce(program, path) AS job,
    gpu,
    capacity_bytes,
    count(*) AS runs,
    max(needed_bytes) AS most_needed_bytes,
    max(smallest_gpu_bytes) AS smaller_card_bytes,
    capacity_bytes - max(smallest_gpu_bytes) AS saved_bytes
FROM reports
WHERE verdict IN ('fits', 'recovered', 'no-oom', 'oom') AND capacity_bytes IS NOT NULL
GROUP BY coalesce(program, path), gpu, capacity_bytes
HAVING max(smallest_gpu_bytes) < capacity_bytes AND count(smallest_gpu_bytes) = count(*)
ORDER BY saved_bytes DESC, job, gpu, capacity_bytes
LIMIT 50
