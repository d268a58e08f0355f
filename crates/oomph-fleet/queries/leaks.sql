-- Which lines leak, and how much does each step add?
SELECT
    site_file,
    site_line,
    count(DISTINCT id) AS runs,
    max(each_bytes) AS most_each_step_bytes,
    max(bytes) AS most_leaked_bytes
FROM causes
WHERE cause LIKE '%leak%' AND NOT background
GROUP BY site_file, site_line
ORDER BY most_each_step_bytes DESC NULLS LAST, runs DESC, site_file, site_line
LIMIT 20
