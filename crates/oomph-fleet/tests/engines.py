"""What other engines say of a dataset; tests/engines.rs compares it with the embedded engine.

    engines.py duckdb DATASET QUERIES    the rows of every file of SQL, as JSON
    engines.py pyarrow DATASET           the rows and the bytes requested of every table, as JSON
    engines.py s3 FOLDER                 a server that speaks S3 with the folder's files in the bucket "jobs" and an empty
                                         bucket "fleet"; says its port, and ends when stdin does
"""

import json
import sys
from pathlib import Path


def plain(value):
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return int(value) if type(value).__name__ == "Decimal" else value


def tables(dataset):
    return sorted(path.name for path in Path(dataset).iterdir() if (path / "v=1").is_dir())


def duckdb(dataset, queries):
    import duckdb

    connection = duckdb.connect()
    for table in tables(dataset):
        files = f"{dataset}/{table}/v=1/**/*.parquet"
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', hive_partitioning = true)")
    return {
        path.stem: [[plain(value) for value in row] for row in connection.execute(path.read_text()).fetchall()]
        for path in Path(queries).glob("*.sql")
    }


def pyarrow(dataset):
    import pyarrow.compute
    import pyarrow.dataset

    answer = {}
    for table in tables(dataset):
        data = pyarrow.dataset.dataset(f"{dataset}/{table}/v=1", partitioning="hive")
        answer[table] = {"rows": data.count_rows(), "columns": data.schema.names}
        if table == "failures":
            answer[table]["requested"] = pyarrow.compute.sum(data.to_table(["requested_bytes"])["requested_bytes"]).as_py()
    return answer


def s3(folder):
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    for bucket in ("jobs", "fleet"):
        client.create_bucket(Bucket=bucket)
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            client.upload_file(str(path), "jobs", f"november/{path.relative_to(folder)}")
    print(port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["duckdb", dataset, queries]:
            print(json.dumps(duckdb(dataset, queries)))
        case ["pyarrow", dataset]:
            print(json.dumps(pyarrow(dataset)))
        case ["s3", folder]:
            s3(folder)
        case _:
            sys.exit(__doc__)
