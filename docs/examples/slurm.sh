#!/bin/bash
# Pretraining on 8 machines with 8 GPUs each:  sbatch slurm.sh
#SBATCH --job-name=textgraft
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output=%x-%j.log
set -euo pipefail

# A drive that all machines have under the same path: the shards, and the output with its checkpoint.
SHARED=/shared/textgraft
FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# A lost process ends the attempt; torchrun starts all of them again, and the run goes on from its last checkpoint.
srun torchrun \
    --nnodes="$SLURM_NNODES" --nproc-per-node=8 --max-restarts=3 \
    --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$FIRST:29500" \
    -m textgraft pretrain "$SHARED/tokens" --recipe gpt2-small --tokens 1e10 --out "$SHARED/gpt2" --quiet
