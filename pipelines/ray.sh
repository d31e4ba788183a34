#!/usr/bin/env bash
# A pipeline on a Ray cluster that is running; its partitions are spread over all nodes:
#
#   RAY_ADDRESS=10.0.0.1:6379 pipelines/ray.sh image_folder s3://bucket/photos s3://bucket/shards
#
# Without RAY_ADDRESS it is the cluster this machine belongs to. shardtools must be installed on every node, in the same
# version; SRC and DST must be seen by all of them. A node that is lost costs the partitions it was at.
set -euo pipefail

refuse() {
    echo "error: expected $1" >&2
    exit 2
}

name=${1:-}
[[ $name ]] || refuse "NAME SRC DST, such as image_folder photos/ shards/, got nothing"
shift
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ -f $project/pipelines/$name.py ]] || refuse "a job at $project/pipelines/$name.py, got none; name one that is there"
export PYTHONPATH=$project${PYTHONPATH:+:$PYTHONPATH}
exec "${PYTHON:-python3}" -m "pipelines.$name" "$@" --engine ray --ray-address "${RAY_ADDRESS:-auto}"
