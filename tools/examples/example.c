/* One attention call from C. The program fills a cache of 4-bit keys and values for 2 KV heads and 1000 tokens and
 * computes attention of 8 query heads over it. It prints the kernels that ran and the difference between the outputs of
 * the fused kernel and of the reference kernel.
 *
 *   cc -std=c99 example.c -lkvjit -lm -o example && ./example
 *
 * SPDX-License-Identifier: MIT */
#include "helpers.h"

static const char* const kSpec =
    "[k]\nformat = \"tbq4_0\"\n"
    "[v]\nformat = \"kv4\"\n"
    "[attention]\nhead_dim = 128\nq_heads_per_kv = 4\nq_type = \"f32\"\nout_type = \"f32\"\n"
    "[cache]\nlayout = \"planar\"\n";

enum { TOKENS = 1000, CAPACITY = 1024, KV_HEADS = 2, Q_HEADS = 8, DIM = 128 };

int main(void) {
  kvjit_error error;
  kvjit_context* context = NULL;
  kvjit_program* program = NULL;
  kvjit_device_info device;
  kvjit_attention_call call;
  kvjit_report report;
  kvjit_side sides[2];
  void *memory[2], *out_memory[2], *zeros;
  float *q = numbers(Q_HEADS * DIM, 1), *out[2];
  double difference;
  int side, i;

  KVJIT_INIT(error);
  KVJIT_INIT(device);
  KVJIT_INIT(call);
  KVJIT_INIT(report);
  require(kvjit_context_create(NULL, &context, &error), &error);
  require(kvjit_context_device(context, &device, &error), &error);
  require(kvjit_program_create(context, kSpec, "example.c", NULL, &program, &error), &error);

  for (side = KVJIT_K; side <= KVJIT_V; ++side) {
    kvjit_codec_call codec;
    size_t bytes = 0, count = (size_t)TOKENS * KV_HEADS * DIM;
    float* x = numbers(count, 2u + (unsigned)side);
    void* device_x = upload(context, x, count * sizeof *x, &error);
    require(kvjit_cache_layout(program, side, 1, KV_HEADS, CAPACITY, NULL, NULL, &bytes, &error), &error);
    require(kvjit_allocate(context, bytes, &memory[side], &error), &error);
    require(kvjit_cache_layout(program, side, 1, KV_HEADS, CAPACITY, memory[side], &sides[side], NULL, &error), &error);
    KVJIT_INIT(codec);
    codec.x = rows(device_x, TOKENS, KV_HEADS, DIM);
    codec.x_type = KVJIT_F32;
    codec.cache = sides[side];
    codec.sequences = 1;
    codec.tokens = TOKENS;
    codec.heads = KV_HEADS;
    require(kvjit_quantize(program, side, &codec, &error), &error);
    require(kvjit_synchronize(context, NULL, &error), &error);
    kvjit_release(context, device_x);
    free(x);
  }

  call.q = rows(upload(context, q, Q_HEADS * DIM * sizeof *q, &error), 1, Q_HEADS, DIM);
  call.k = sides[KVJIT_K];
  call.v = sides[KVJIT_V];
  call.tokens = TOKENS;
  call.sequences = 1;
  call.kv_heads = KV_HEADS;
  require(kvjit_workspace_bytes(program, &call, &call.workspace_bytes, &error), &error);
  zeros = calloc(1, call.workspace_bytes);
  if (!zeros) return 1;
  call.workspace = upload(context, zeros, call.workspace_bytes, &error);
  for (i = 0; i < 2; ++i) { /* 0: the fused kernel; 1: the reference kernel */
    require(kvjit_allocate(context, Q_HEADS * DIM * sizeof(float), &out_memory[i], &error), &error);
    call.out = rows(out_memory[i], 1, Q_HEADS, DIM);
    require(i == 0 ? kvjit_attention(program, &call, &report, &error) : kvjit_reference(program, &call, NULL, &error),
            &error);
    out[i] = malloc(Q_HEADS * DIM * sizeof(float));
    if (!out[i]) return 1;
    require(kvjit_synchronize(context, NULL, &error), &error);
    require(kvjit_copy_to_host(context, out[i], out_memory[i], Q_HEADS * DIM * sizeof(float), &error), &error);
  }
  difference = relative_distance(out[0], out[1], Q_HEADS * DIM);
  printf("device     %s\n", device.name);
  for (i = 0; i < report.kernel_count; ++i) printf("kernel     %s\n", report.kernels[i]);
  printf("readers    K as %s, V as %s\n", report.k_reader, report.v_reader);
  printf("cache      %ld bytes read, %ld converted outside the kernel\n", (long)report.cache_bytes,
         (long)report.converted_bytes);
  printf("difference %.1e from the reference kernel\n", difference);

  for (i = 0; i < 2; ++i) {
    kvjit_release(context, memory[i]);
    kvjit_release(context, out_memory[i]);
    free(out[i]);
  }
  kvjit_release(context, call.q.data);
  kvjit_release(context, call.workspace);
  free(zeros);
  free(q);
  kvjit_program_destroy(program);
  kvjit_context_destroy(context);
  return difference < 1e-3 ? 0 : 6;
}
