// Trial: a program with a cache of its own on a device, fed from and read back to host arrays. Used by `run`, `verify`,
// `bench` and the tests; the CPU back-end and a GPU look the same from here.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "generator/resolve/problem.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/launch/kv_layout.hpp"
#include "runtime/launch/program.hpp"
#include "tools/verify/feature_inputs.hpp"
#include "tools/verify/guarded.hpp"
#include "tools/verify/pages.hpp"
#include "tools/verify/row_places.hpp"

namespace kvjit {

struct CacheShape {
  int sequences = 1, kv_heads = 1;
  long long tokens = 0;  // capacity of each sequence
  int copies = 1;        // timed calls take turns over them; everything else uses the first
  PagePlaces places = PagePlaces::own;
  RowPlaces rows = {};  // of layout rows
};

// What Trial::make allocates for the caches; the largest std::size_t if that is no number of bytes.
std::size_t memory_bytes(const ProgramSource& source, const CacheShape& shape);

class Trial {
 public:
  static Result<Trial> make(std::shared_ptr<Context> context, std::shared_ptr<Program> program, const Problem& problem,
                            const CacheShape& shape);

  // Another program over the same cache: of the same problem, planned otherwise.
  void use(std::shared_ptr<Program> program) { program_ = std::move(program); }

  // side 0 = K, 1 = V; x [sequences][kv_heads][tokens][head_dim], uploaded as `type`.
  Result<void> quantize(int side, std::span<const float> x, Element type = Element::f32);
  // The same in a cache of pages by slot mapping: every row with the slot that the page table would give it; those of a
  // token whose bit in `skipped` [sequence][token] is set with a negative one.
  Result<void> quantize_slots(int side, std::span<const float> x, const std::vector<bool>& skipped);
  // Of formats that have one scale for the whole tensor: used by every call from now on.
  void set_tensor_scale(int side, float scale) { tensor_scale_[side] = scale; }
  // Stored rows as whole blocks in file order, whatever the layout: [sequences][kv_heads][tokens][row_bytes];
  // padding as it is stored, or 0 where the layout has none.
  Result<std::vector<std::uint8_t>> rows(int side) const;
  // The inverse: a cache that somebody else encoded. Padding keeps 0xFF: no kernel may read it.
  Result<void> set_rows(int side, std::span<const std::uint8_t> rows);
  // The same for caches too large to be encoded: `rows` over and over, repeated by the device, in every copy.
  Result<void> fill(int side, std::span<const std::uint8_t> rows);
  // [sequences][kv_heads][tokens][head_dim], by way of `type`; rotated: [...][stored values], left in the rotated
  // domain.
  Result<std::vector<float>> dequantize(int side, bool rotated = false, Element type = Element::f32) const;

  // Of programs that append: K (side 0) or V of the newest tokens for every call from now on,
  // [sequences][query_length][kv_heads] [head_dim], given as `type`.
  void set_newest(int side, std::vector<float> x, Element type = Element::f32);

  // Of programs with features: what they read, for every call from now on.
  void set_features(FeatureInputs inputs) { features_ = std::move(inputs); }
  const FeatureInputs& features() const { return features_; }

  struct Call {
    int tokens = 0;            // 0: the capacity
    std::vector<int> lengths;  // of each sequence; empty: tokens for all
    int blocks = 0;            // 0: the program chooses
    bool is_reference = false;
    double scale = 0;  // 0: 1/sqrt(head_dim)
    QueryPlaces q = {}, out = {};
  };
  struct Outcome {
    std::vector<float> out;  // [sequences][q_heads][query_length][head_dim]
    std::vector<float> lse;  // [sequences][q_heads][query_length], of programs that give it
    LaunchReport report;
  };
  // q like out, rounded to the program's q type on the way (rounded_to). Fails with differs if bytes around or between
  // what the call writes changed.
  Result<Outcome> attend(std::span<const float> q, const Call& call) const;
  // `calls` calls with q and with `other` in turn, each behind the last without waiting, all with one workspace: how
  // many gave other bytes than the first with the same queries.
  Result<int> differing(std::span<const float> q, std::span<const float> other, const Call& call, int calls) const;
  // Outcomes over parts of a context to the one over all of it.
  Result<Outcome> merge(const std::vector<Outcome>& parts) const;
  struct Timed {
    Backend::Timing timing;
    LaunchReport report;
  };
  Result<Timed> time(std::span<const float> q, const Call& call, int repeats) const;

  // quantize (is_writing) or dequantize of the whole cache, from or to x [sequences][tokens][kv_heads][head_dim] of
  // `type` in the device's memory. `sample`: some rows, which x repeats.
  Result<Backend::Timing> time_codec(int side, bool is_writing, Element type, std::span<const float> sample,
                                     int repeats) const;

  const CacheShape& shape() const { return shape_; }
  // For calls that Trial has no verb for: where a side is, and its page table (nothing, without pages), which `buffer`
  // keeps. lengths: of the sequences; empty: the capacity.
  Result<kv::PageTable> upload_table(int side, const std::vector<int>& lengths, Buffer& buffer) const;
  kv::CacheSide cache(int side, int copy = 0) const {
    return at(geometry_[side], memory(copy, side) + static_cast<std::size_t>(shape_.rows.front));
  }
  DevicePointer memory(int copy) const { return memory_.pointer() + static_cast<std::size_t>(copy) * copy_bytes_; }

 private:
  struct Launch;  // buffers of one call
  std::pair<long long, long long> row_place(int side, long long sequence, long long head, long long token) const;
  Result<void> fill_pages(int side, std::span<const std::uint8_t> rows, long long count);
  CheckBounds bounds() const;
  // Waits; of checked programs, what the record says is an error.
  Result<void> finish() const;
  template <class Visit>
  void visit_row(int side, long long codes, long long scales, long long row, Visit visit) const;
  // visit(field, byte of the side's memory, byte of the rows) for every field of every row that the layout has.
  template <class Visit>
  void for_each_piece(int side, Visit visit) const;
  std::size_t rows_bytes(int side) const;
  Result<Launch> prepare(std::span<const float> q, const Call& call) const;
  Result<void> prepare_features(Launch& launch) const;
  Result<std::vector<float>> out_of(const Launch& launch) const;
  Result<std::vector<float>> lse_of(const Launch& launch) const;
  const SideFacts& facts(int side) const { return side == 0 ? program_->source().k : program_->source().v; }
  const Format& format(int side) const { return side == 0 ? problem_.k : problem_.v; }
  DevicePointer memory(int copy, int side) const { return memory(copy) + (side == 0 ? 0 : values_at_); }
  long long stored_sequences() const { return shape_.rows.shares_sequences ? 1 : shape_.sequences; }
  QueryShape query_shape(int dim) const {
    return {shape_.sequences, static_cast<long long>(shape_.kv_heads) * problem_.q_heads_per_kv, problem_.query_length,
            dim};
  }
  kv::CodecArgs codec_args(int side, DevicePointer x, int dim, Element type) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<Program> program_;
  Problem problem_;
  CacheShape shape_;
  SideGeometry geometry_[2];
  PageDeal pages_[2];  // of layout paged
  Buffer check_;       // of checked programs: their record
  Buffer memory_;      // copies one behind the other, each K, then V
  std::size_t values_at_ = 0, copy_bytes_ = 0;
  float tensor_scale_[2] = {1, 1};
  std::vector<float> newest_[2];
  Element newest_type_ = Element::f32;  // of both
  FeatureInputs features_;
};

// The rows of the `count` tokens before the end of each sequence, [sequences][count][kv_heads][dim], from x
// [sequences][kv_heads][tokens] [dim]; zeros for those before the first.
std::vector<float> newest_rows(std::span<const float> x, const CacheShape& shape, const std::vector<int>& lengths,
                               int count, int dim);

// What the kernel sees of x when it is given as `type`.
std::vector<float> rounded_to(Element type, std::span<const float> x);

}  // namespace kvjit
