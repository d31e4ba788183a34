#!/usr/bin/env bash
# A pipeline as a Slurm array job: each task builds one part, on a node of its own. From the folder of this project:
#
#   sbatch --array=1-8 pipelines/slurm.sh image_folder /shared/photos /shared/shards/photos
#
# SRC and DST must be seen by all nodes. No task waits for another: the one that finds the work of all done publishes the
# dataset. Tasks that were lost are begun again by the same command, with any number of parts; what is built stays built.
#
#SBATCH --job-name=shardtools
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

refuse() {
    echo "error: expected $1" >&2
    exit 2
}

name=${1:-}
[[ $name ]] || refuse "NAME SRC DST, such as image_folder photos/ shards/, got nothing"
shift
first=${SLURM_ARRAY_TASK_MIN:-1}
num_parts=${SLURM_ARRAY_TASK_COUNT:-}
[[ $num_parts ]] || refuse "an array job, got another: sbatch --array=1-8 pipelines/slurm.sh NAME SRC DST"
part=$((SLURM_ARRAY_TASK_ID - first + 1))
((part <= num_parts)) || refuse "an array without gaps, such as --array=1-$num_parts, got task $SLURM_ARRAY_TASK_ID"

# Slurm runs a copy of this script; the project is where it was submitted.
project=${SLURM_SUBMIT_DIR:-$PWD}
[[ -f $project/pipelines/$name.py ]] || refuse "a job at $project/pipelines/$name.py, got none; submit a job that is there, from the folder of the project"
export PYTHONPATH=$project${PYTHONPATH:+:$PYTHONPATH}
# exec: the signal by which Slurm ends a task reaches the job itself.
exec "${PYTHON:-python3}" -m "pipelines.$name" "$@" --part "$part/$num_parts" --workers "${SLURM_CPUS_PER_TASK:-1}"
