/* What the examples share: numbers, device memory, and what to do with an error.
 *
 * SPDX-License-Identifier: MIT */
#ifndef KVJIT_EXAMPLES_HELPERS_H
#define KVJIT_EXAMPLES_HELPERS_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvjit.h"

/* Stops with kvjit's message. A real engine would pass the status on. */
static inline void require(kvjit_status status, const kvjit_error* error) {
  if (status == KVJIT_OK) return;
  fprintf(stderr, "error %d: %s\n%s", error->status, error->message, error->notes);
  exit(1);
}

/* Returns numbers in [-1, 1) from a linear congruential generator, which are the same on every machine. */
static inline float* numbers(size_t count, unsigned seed) {
  float* x = malloc(count * sizeof *x);
  size_t i;
  if (!x) exit(1);
  for (i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
  return x;
}

/* Copies host bytes to new device memory. */
static inline void* upload(kvjit_context* context, const void* from, size_t bytes, kvjit_error* error) {
  void* to = NULL;
  require(kvjit_allocate(context, bytes, &to, error), error);
  require(kvjit_copy_to_device(context, to, from, bytes, error), error);
  return to;
}

/* Returns the strides of an array [sequence][token][head][dim]. Calls over ragged batches do not read the stride of
 * sequences. */
static inline kvjit_rows rows(void* data, int tokens, int heads, int dim) {
  kvjit_rows r;
  r.data = data;
  r.sequence_stride = (kvjit_index)tokens * heads * dim;
  r.query_stride = (kvjit_index)heads * dim;
  r.head_stride = dim;
  return r;
}

/* Returns the distance of `a` from `b`, relative to the length of `b`: both are vectors of `count` floats. */
static inline double relative_distance(const float* a, const float* b, size_t count) {
  double difference = 0, size = 0;
  size_t i;
  for (i = 0; i < count; ++i) difference += pow((double)a[i] - b[i], 2), size += pow(b[i], 2);
  return sqrt(difference / size);
}

#endif
