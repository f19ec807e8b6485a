#!/bin/bash
# Llama 3 70B on 64 GPUs: TP 4, PP 4, five chunks of four layers per pipeline rank.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_IB_QPS_PER_CONNECTION=4

GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-8}
TP=${TP:-4}
PP=4
CHECKPOINT_PATH=$1
TOKENIZER_MODEL=meta-llama/Meta-Llama-3-70B

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr ${MASTER_ADDR:-localhost}
    --master_port ${MASTER_PORT:-6000}
)

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 80
    --hidden-size 8192
    --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --rotary-base 500000 # theta
    --rotary-percent 1.0
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --swiglu
    --normalization RMSNorm
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --init-method-std 0.0134
    --attention-backend fused
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 256
    --train-samples 1953125000
    --lr 0.00015
    --min-lr 1.0e-5
    --lr-decay-style cosine
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --clip-grad 1.0
    --bf16
    --cross-entropy-loss-fusion
    --manual-gc
)

MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size ${PP}
    --num-layers-per-virtual-pipeline-stage 4
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --tp-comm-overlap
)

DATA_ARGS="
    --data-path ${DATA_PATH} \
    --tokenizer-type HuggingFaceTokenizer \
    --tokenizer-model ${TOKENIZER_MODEL} \
    --split 99,1,0 \
"

LOGGING_ARGS=(
    --log-interval 1
    --save-interval 500
    --eval-iters 0
    --save "$CHECKPOINT_PATH"
    --load "$CHECKPOINT_PATH"
    --log-throughput
)

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${TRAINING_ARGS[@]}" \
    "${MODEL_PARALLEL_ARGS[@]}" \
    $DATA_ARGS \
    "${LOGGING_ARGS[@]}" 2>&1 | tee train.log
