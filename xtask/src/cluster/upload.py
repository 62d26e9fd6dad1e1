"""Uploads the files of a folder to a bucket of an S3 server: `upload.py FOLDER BUCKET`. The server and the keys are those of the environment."""

import pathlib
import sys

import boto3

folder, bucket = pathlib.Path(sys.argv[1]), sys.argv[2]
client = boto3.client("s3")
client.create_bucket(Bucket=bucket)
files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
for path in files:
    client.upload_file(str(path), bucket, path.relative_to(folder).as_posix())
print(f"{len(files)} files in s3://{bucket}")
