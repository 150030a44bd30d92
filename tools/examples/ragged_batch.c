/* One attention call over a ragged batch, from C, as engines with continuous batching make it. Sequence 0 decodes: it
 * has one new query. Sequence 1 is a prompt: it has 100 queries. Their contexts have different lengths. The queries of
 * both stand one behind the other, and query_starts says where each sequence begins. The program prints the kernels
 * that ran and the difference between the outputs of the fused kernels and of the reference kernel.
 *
 *   cc -std=c99 ragged_batch.c -lkvjit -lm -o ragged_batch && ./ragged_batch
 *
 * SPDX-License-Identifier: MIT */
#include "helpers.h"

static const char* const kSpec =
    "[k]\nformat = \"q8_0\"\n"
    "[v]\nformat = \"q4_0\"\n"
    "[attention]\nhead_dim = 128\nq_heads_per_kv = 4\nq_type = \"f32\"\nout_type = \"f32\"\n"
    "query_length = \"any\"\nfeatures = [\"causal\"]\n"
    "[cache]\nlayout = \"rows\"\n";

enum { SEQUENCES = 2, CAPACITY = 512, KV_HEADS = 2, Q_HEADS = 8, DIM = 128, QUERIES = 101, VALUES = Q_HEADS * DIM };
static const int kLengths[SEQUENCES] = {500, 130};          /* tokens, those of the new queries included */
static const int kQueryStarts[SEQUENCES + 1] = {0, 1, 101}; /* as cu_seqlens */

/* Allocates the cache of a side for all sequences, and stores numbers in it. Returns its memory. */
static void* fill_cache(kvjit_context* context, kvjit_program* program, int side, kvjit_side* cache,
                        kvjit_error* error) {
  const size_t count = (size_t)SEQUENCES * CAPACITY * KV_HEADS * DIM;
  float* x = numbers(count, 2u + (unsigned)side);
  void *device_x = upload(context, x, count * sizeof *x, error), *memory = NULL;
  size_t bytes = 0;
  kvjit_codec_call call;
  KVJIT_INIT(call);
  require(kvjit_cache_layout(program, side, SEQUENCES, KV_HEADS, CAPACITY, NULL, NULL, &bytes, error), error);
  require(kvjit_allocate(context, bytes, &memory, error), error);
  require(kvjit_cache_layout(program, side, SEQUENCES, KV_HEADS, CAPACITY, memory, cache, NULL, error), error);
  call.x = rows(device_x, CAPACITY, KV_HEADS, DIM);
  call.x_type = KVJIT_F32;
  call.cache = *cache;
  call.sequences = SEQUENCES;
  call.tokens = CAPACITY;
  call.heads = KV_HEADS;
  require(kvjit_quantize(program, side, &call, error), error);
  require(kvjit_synchronize(context, NULL, error), error);
  kvjit_release(context, device_x);
  free(x);
  return memory;
}

int main(void) {
  kvjit_error error;
  kvjit_context* context = NULL;
  kvjit_program* program = NULL;
  kvjit_attention_call call;
  kvjit_report report;
  void *memory[2], *lengths, *query_starts, *zeros;
  float *q = numbers(QUERIES * VALUES, 1), *out[2];
  double difference;
  int i;

  KVJIT_INIT(error);
  KVJIT_INIT(call);
  KVJIT_INIT(report);
  require(kvjit_context_create(NULL, &context, &error), &error);
  require(kvjit_program_create(context, kSpec, "ragged_batch.c", NULL, &program, &error), &error);
  memory[0] = fill_cache(context, program, KVJIT_K, &call.k, &error);
  memory[1] = fill_cache(context, program, KVJIT_V, &call.v, &error);

  /* The host knows upper bounds alone. Lengths and query_starts are read on the device, so a captured CUDA graph serves
   * any batch within the bounds. */
  lengths = upload(context, kLengths, sizeof kLengths, &error);
  query_starts = upload(context, kQueryStarts, sizeof kQueryStarts, &error);
  call.q = rows(upload(context, q, QUERIES * VALUES * sizeof *q, &error), QUERIES, Q_HEADS, DIM);
  call.sequences = SEQUENCES;
  call.kv_heads = KV_HEADS;
  call.lengths = lengths;
  call.tokens = CAPACITY; /* no length is larger */
  call.query_starts = query_starts;
  call.queries = 100; /* no sequence has more */
  call.query_rows = QUERIES;
  require(kvjit_workspace_bytes(program, &call, &call.workspace_bytes, &error), &error);
  zeros = calloc(1, call.workspace_bytes);
  if (!zeros) return 1;
  call.workspace = upload(context, zeros, call.workspace_bytes, &error);
  free(zeros);
  for (i = 0; i < 2; ++i) { /* 0: the fused kernels; 1: the reference kernel */
    void* out_memory = NULL;
    const size_t bytes = QUERIES * VALUES * sizeof(float);
    require(kvjit_allocate(context, bytes, &out_memory, &error), &error);
    call.out = rows(out_memory, QUERIES, Q_HEADS, DIM);
    require(i == 0 ? kvjit_attention(program, &call, &report, &error) : kvjit_reference(program, &call, NULL, &error),
            &error);
    out[i] = malloc(bytes);
    if (!out[i]) return 1;
    require(kvjit_synchronize(context, NULL, &error), &error);
    require(kvjit_copy_to_host(context, out[i], out_memory, bytes, &error), &error);
    kvjit_release(context, out_memory);
  }
  for (i = 0; i < report.kernel_count; ++i) printf("kernel     %s\n", report.kernels[i]);
  difference = relative_distance(out[0], out[1], QUERIES * VALUES);
  printf("difference %.1e from the reference kernel\n", difference);

  for (i = 0; i < 2; ++i) {
    kvjit_release(context, memory[i]);
    free(out[i]);
  }
  kvjit_release(context, lengths);
  kvjit_release(context, query_starts);
  kvjit_release(context, call.q.data);
  kvjit_release(context, call.workspace);
  free(q);
  kvjit_program_destroy(program);
  kvjit_context_destroy(context);
  return difference < 1e-3 ? 0 : 6;
}
