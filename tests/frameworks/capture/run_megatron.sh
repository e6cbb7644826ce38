GPUS=8
torchrun --nproc-per-node "$GPUS" --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --position-embedding-type rope \
  --untie-embeddings-and-output-weights --disable-bias-linear --max-position-embeddings 4096 --vocab-size 128256 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 --sequence-parallel \
  --use-distributed-optimizer --bf16 --micro-batch-size 1 --global-batch-size 128 --attention-dropout 0 --hidden-dropout 0 --mock-data \
  --tokenizer-type NullTokenizer --train-iters 10 --lr 1e-4 --overlap-grad-reduce --overlap-param-gather --recompute-activations
