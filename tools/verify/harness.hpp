// KernelHarness: one program with its own cache on a device, filled from host arrays and read back to host arrays.
// `run`, `verify`, `bench` and the tests run kernels through it, on a GPU and on the CPU back-end alike.
//
// The cache's memory starts as 0xFF, so that an unwritten row reads as NaN or as extreme codes. Output, lse and
// workspace of each call lie between guard bytes (guarded.hpp), which are compared after the call. side: 0 = K, 1 = V.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "generator/resolve/problem.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/launch/kv_layout.hpp"
#include "runtime/launch/program.hpp"
#include "tools/verify/feature_inputs.hpp"
#include "tools/verify/guarded.hpp"
#include "tools/verify/measure.hpp"
#include "tools/verify/pages.hpp"
#include "tools/verify/row_places.hpp"

namespace kvjit {

struct CacheShape {
  int sequences = 1;
  int kv_heads = 1;
  long long tokens = 0;                 // capacity of each sequence, in tokens
  int copies = 1;                       // copies of the cache: timed calls alternate over all, others use the first
  PagePlaces places = PagePlaces::own;  // layout paged: places of rows inside a page
  RowPlaces rows = {};                  // layout rows: places of rows
};

// The bytes that KernelHarness::make allocates for the copies; the largest std::size_t if the number overflows.
std::size_t memory_bytes(const ProgramSource& source, const CacheShape& shape);

class KernelHarness {
 public:
  static Result<KernelHarness> make(std::shared_ptr<Context> context, std::shared_ptr<Program> program,
                                    const Problem& problem, const CacheShape& shape);

  // Replaces the program by another plan of the same problem; the cache stays.
  void use(std::shared_ptr<Program> program) { program_ = std::move(program); }

  // Stores x [sequences][kv_heads][tokens][head_dim] by the quantize kernel; x is uploaded as elements of `type`.
  Result<void> quantize(int side, std::span<const float> x, Element type = Element::f32);
  // Does the same in a paged cache by slot mapping. Each token has its slot by the page table; a token whose bit in
  // `skipped` [sequence][token] is set has a negative slot, so its rows are not stored.
  Result<void> quantize_slots(int side, std::span<const float> x, const std::vector<bool>& skipped);
  // Sets the scale of a format that has one scale for the whole tensor, for every call from now on.
  void set_tensor_scale(int side, float scale) { tensor_scale_[side] = scale; }
  // Does the same for a format with a scale for each KV head. They are 1 before.
  Result<void> set_head_scales(int side, std::vector<float> scales);
  // Gives heads different scales, on the sides whose format has one for each.
  Result<void> vary_head_scales();
  // The scales by which the reference codec encodes and decodes rows().
  RowScales row_scales(int side) const { return {tensor_scale_[side], head_scales_[side], shape_.tokens}; }
  // Reads the stored rows as whole blocks in file order, whatever the layout: [sequences][kv_heads][tokens][row_bytes].
  // Padding has its stored bytes, or 0 if the layout stores no padding.
  Result<std::vector<std::uint8_t>> rows(int side) const;
  // Writes encoded rows, in the order of rows(). Padding becomes 0xFF, because no kernel may read it.
  Result<void> set_rows(int side, std::span<const std::uint8_t> rows);
  // Fills every copy of the cache with repetitions of `rows`. The device repeats them, for caches that are too large
  // for the host to encode.
  Result<void> fill(int side, std::span<const std::uint8_t> rows);
  // Reads the cache back by the dequantize kernel, which writes elements of `type`:
  // [sequences][kv_heads][tokens][head_dim]. rotated: rows of the rotated domain, with all stored values.
  Result<std::vector<float>> dequantize(int side, bool rotated = false, Element type = Element::f32) const;

  // Sets the new tokens' rows that an append program stores in every call from now on:
  // [sequences][query_length][kv_heads][head_dim], uploaded as elements of `type`.
  void set_new_tokens(int side, std::vector<float> x, Element type = Element::f32);

  // Sets the arrays that the program's features read in every call from now on.
  void set_features(FeatureInputs inputs) { features_ = std::move(inputs); }
  const FeatureInputs& features() const { return features_; }

  // Pages of a side, [sequence][page of the sequence], whose entries of the page table lead anywhere in every call from
  // now on: to a page of 0xFF, ahead of the pool, or far behind it. `seed` decides which.
  void free_pages(int side, const std::vector<bool>& freed, std::uint64_t seed);
  // Rows, in the order of rows(), whose memory calls of attend must not touch from now on. The CPU back-end takes away
  // the pages that hold no other row, and attend fails if one is touched, or memory that is not there.
  void set_unmapped(int side, std::vector<bool> rows) { unmapped_[side] = std::move(rows); }

  struct Call {
    int tokens = 0;             // tokens of every sequence; 0: the capacity
    std::vector<int> lengths;   // tokens of each sequence, passed in device memory; empty: `tokens` for all
    int blocks = 0;             // blocks of the launch; 0: the program chooses
    bool is_reference = false;  // runs the reference kernel instead of decode
    double scale = 0;           // factor of q.k; 0: 1/sqrt(head_dim)
    QueryPlaces q = {};         // places of the rows of the queries
    QueryPlaces out = {};       // places of the rows of the output
    ManyRows many_rows = ManyRows::chosen;
    int queries = 0;                      // of every sequence, of a ragged batch at most; 0: as many as there are
    std::vector<int> query_counts = {};   // a ragged batch: queries of each sequence
    std::size_t context_chunk_bytes = 0;  // prefill in two passes: AttentionCall::context_chunk_bytes
  };
  struct Outcome {
    std::vector<float> out;  // for each sequence [q_heads][its queries][head_dim]
    std::vector<float> lse;  // for each sequence [q_heads][its queries]; empty if the program has no lse
    LaunchReport report;
  };
  // Runs one call. q has the shape of Outcome::out with K's head_dim, and is rounded to the program's q type
  // (rounded_to). Fails with Code::differs if the call changed a guard byte or a byte between rows of the output.
  Result<Outcome> attend(std::span<const float> q, const Call& call) const;
  // A stress test: queues `calls` launches that alternate q and `other`, without waiting, all with one workspace.
  // Returns the number of outputs that differ in a byte from the first output of the same queries.
  Result<int> differing(std::span<const float> q, std::span<const float> other, const Call& call, int calls) const;
  // Merges the outcomes of calls over parts of a context into the outcome over all of it (merge_contexts).
  Result<Outcome> merge(const std::vector<Outcome>& contexts) const;
  struct Timed {
    Backend::Timing timing;
    LaunchReport report;
  };
  // Times the call; calls alternate over the copies of the cache.
  Result<Timed> time(std::span<const float> q, const Call& call, int repeats) const;

  // Times quantize (is_writing) or dequantize of the whole cache, from or to x [sequences][tokens][kv_heads][head_dim]
  // of `type` in the device's memory. x repeats the rows of `sample`.
  Result<Backend::Timing> time_codec(int side, bool is_writing, Element type, std::span<const float> sample,
                                     int repeats) const;

  const CacheShape& shape() const { return shape_; }
  // For calls without a method here. upload_table uploads the page table of a side into `buffer`; without pages the
  // table is empty. `lengths`: tokens of each sequence; empty: the capacity. cache() returns a side's pointers and
  // strides.
  Result<kv::PageTable> upload_table(int side, const std::vector<int>& lengths, Buffer& buffer) const;
  kv::CacheSide cache(int side, int copy = 0) const;
  DevicePointer memory(int copy) const { return memory_.pointer() + static_cast<std::size_t>(copy) * copy_bytes_; }

 private:
  struct Launch;  // the buffers of one call
  // Offsets of the codes and the scales of a row in the side's memory.
  std::pair<long long, long long> row_place(int side, long long sequence, long long head, long long token) const;
  Result<void> fill_pages(int side, std::span<const std::uint8_t> rows, long long count);
  // The bytes of the device that belong to no row but the unmapped ones.
  std::vector<std::pair<DevicePointer, DevicePointer>> unmapped_ranges() const;
  CheckBounds bounds() const;
  // Waits for the device. Fails if the record of a checked program reports an error.
  Result<void> finish() const;
  // Bytes from the scales of token 0 of a page, or of a head, to those of a token.
  long long scales_of_token(int side, long long token) const;
  // Calls visit(field, byte of the side's memory, byte of the rows) for every field of one row.
  template <class Visit>
  void visit_row(int side, long long codes, long long scales, long long row, Visit visit) const;
  // Does the same for every row of the cache.
  template <class Visit>
  void for_each_field(int side, Visit visit) const;
  std::size_t rows_bytes(int side) const;
  Result<Launch> prepare(std::span<const float> q, const Call& call) const;
  Result<void> prepare_features(Launch& launch) const;
  // The rows of q and of the output in memory. A ragged batch is one sequence of all its queries.
  QueryShape query_shape(const Call& call, int dim) const;
  Result<std::vector<float>> out_of(const Launch& launch) const;
  Result<std::vector<float>> lse_of(const Launch& launch) const;
  const SideInfo& info(int side) const { return side == 0 ? program_->source().k : program_->source().v; }
  const Format& format(int side) const { return side == 0 ? problem_.k : problem_.v; }
  DevicePointer memory(int copy, int side) const { return memory(copy) + (side == 0 ? 0 : values_at_); }
  long long stored_sequences() const { return shape_.rows.shares_sequences ? 1 : shape_.sequences; }
  kv::CodecArgs codec_args(int side, DevicePointer x, int dim, Element type) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<Program> program_;
  Problem problem_;
  CacheShape shape_;
  SideGeometry geometry_[2];
  PageDeal pages_[2];                  // layout paged: the pages of K and V
  Buffer check_;                       // checked programs: the check record
  Buffer memory_;                      // the copies, one behind the other; each is K, then V
  std::size_t values_at_ = 0;          // bytes from the start of a copy to V
  std::size_t copy_bytes_ = 0;         // bytes of a copy
  float tensor_scale_[2] = {1, 1};     // scales of K and V, for formats with one scale a tensor
  std::vector<float> head_scales_[2];  // those of formats with one a KV head; else empty
  Buffer head_scale_memory_[2];
  std::vector<float> new_tokens_[2];        // rows of K and V that an append program stores
  Element new_tokens_type_ = Element::f32;  // element type of both
  FeatureInputs features_;
  std::vector<bool> unmapped_[2];
  std::map<std::size_t, int> freed_[2];  // entries of the page tables that differ, by their index
};

// Rows of `dim` values of a ragged batch: from [q_heads][queries of all sequences] to [q_heads][its queries] of each
// sequence, or back.
std::vector<float> of_sequences(std::span<const float> rows, const std::vector<int>& query_counts, int dim);
std::vector<float> of_batch(std::span<const float> rows, const std::vector<int>& query_counts, int dim);

// Takes the rows of the last `count` tokens of each sequence from x [sequences][kv_heads][tokens][dim]. Returns
// [sequences][count][kv_heads][dim], with zeros for tokens before the first.
std::vector<float> new_token_rows(std::span<const float> x, const CacheShape& shape, const std::vector<int>& lengths,
                                  int count, int dim);

// The numbers x, each rounded to nearest in `type`, as a kernel reads them from elements of that type.
std::vector<float> rounded_to(Element type, std::span<const float> x);

}  // namespace kvjit
