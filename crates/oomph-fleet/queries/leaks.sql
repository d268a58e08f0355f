-- Which lines leak, and how much does each step add?
SELECT
    failures.site_file,
    failures.site_line,
    count(DISTINCT failures.id) AS failures,
    max(causes.each_bytes) AS most_each_step_bytes,
    max(causes.bytes) AS most_leaked_bytes
FROM causes JOIN failures ON causes.id = failures.id
WHERE causes.cause LIKE '%leak%' AND NOT causes.background
GROUP BY failures.site_file, failures.site_line
ORDER BY failures DESC, failures.site_file, failures.site_line
LIMIT 20
