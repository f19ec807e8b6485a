#!/bin/bash
# Qwen3 8B on one node, or on more: what a shell has to work out is in defaults, arithmetic, conditions and arrays.
set -euo pipefail

SIZE=${SIZE:-8b}
PRECISION=${PRECISION:-${DTYPE:-fp8}}
GPUS_PER_NODE=8
NNODES=${NNODES:-1}
TP=2
DP=$((GPUS_PER_NODE * NNODES / TP))
HOST=$(hostname | cut -d. -f1) # only a shell knows

if [ -z "${TOKENIZER_MODEL:-}" ]; then
    TOKENIZER_MODEL=Qwen/Qwen3-8B
else
    echo "with a tokenizer of one's own"
fi

case "$SIZE" in
    4b) LAYERS=36; HIDDEN=2560; FFN=9728 ;;
    8b | default)
        LAYERS=36
        HIDDEN=4096
        FFN=12288
        ;;
    *) echo "no such size: $SIZE"; exit 1 ;;
esac

MODEL_ARGS="
    --num-layers ${LAYERS} --hidden-size ${HIDDEN} --ffn-hidden-size ${FFN} --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --kv-channels 128 --qk-layernorm \
    --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights \
    --position-embedding-type rope --seq-length 4096 --max-position-embeddings 40960 \
"

PRECISION_ARGS=(--bf16)
if [[ "$PRECISION" == "fp8" ]] && [ "$GPUS_PER_NODE" -ge 8 ]; then
    PRECISION_ARGS+=(
        "--fp8-format hybrid" # quoted, as some recipes have it
        "--fp8-recipe blockwise"
    )
elif [[ "$PRECISION" == "fp16" ]]; then
    PRECISION_ARGS=(--fp16)
fi

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py $MODEL_ARGS "${PRECISION_ARGS[@]}" \
    --tensor-model-parallel-size $TP --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce \
    --micro-batch-size 1 --global-batch-size $((DP * 16)) --tokenizer-type HuggingFaceTokenizer \
    --tokenizer-model "$TOKENIZER_MODEL" --save "/checkpoints/$HOST" --lr 3e-4
