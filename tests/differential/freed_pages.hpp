// A paged cache whose pages are freed where no query sees a token of them. The process cannot read a freed page, and
// the table says 0, -1, 1000000 or the smallest integer in its place. Page 0 is the null page of an engine, which it
// cannot read either. So a kernel that touches such a page, or takes such an entry for a page number, kills the
// process; calls run in a child process (end_of). Memory is that of the host, which the CPU back-end uses directly.
//
// Kernels of the codec store the rows and read them back for the oracle, before any page is freed.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/launch/kv_layout.hpp"
#include "tests/differential/harness.hpp"
#include "tests/support/fenced_backend.hpp"

namespace kvjit::test {

struct FreedCase {
  std::string k, v,
      attention;  // lines of [attention]
  int page_tokens = 16;
  Layout page_layout = Layout::planar;
  std::string more = "";  // further lines

  std::string toml() const {
    return fmt::format(
        "k.format = \"{}\"\nv.format = \"{}\"\n{}\n[attention]\n{}\n[cache]\nlayout = \"paged\"\npage_tokens = "
        "{}\npage_layout = \"{}\"\n",
        k, v, more, attention, page_tokens, to_string(page_layout));
  }
};
inline Planned planned(const Registry& registry, const FreedCase& test, const std::string& arch) {
  Problem problem = must(resolve(must(parse_specs(test.toml(), test.attention)).at(0), registry, arch));
  ProgramSource source = must(make_program(problem, registry));
  return {{test.k, test.v, problem.head_dim, problem.q_heads_per_kv, problem.query_length, Layout::paged},
          std::move(problem),
          std::move(source)};
}

// What the features of a call read that say which tokens are seen; empty: not given.
struct SeenInputs {
  std::vector<int> token_ranges = {}, position_offsets = {};
  int position_offset = 0;
};

class FreedPages {
 public:
  // counts: queries of each sequence of a ragged batch; empty: each sequence has `queries`, 0: the program's number.
  FreedPages(const std::shared_ptr<Context>& context, const Planned& one, std::vector<int> lengths,
             SeenInputs inputs = {}, std::vector<int> counts = {}, int queries = 0)
      : problem_(one.problem),
        program_(must(Program::create(context, one.source))),
        lengths_(std::move(lengths)),
        inputs_(std::move(inputs)),
        is_ragged_(!counts.empty()),
        counts_(std::move(counts)) {
    if (!is_ragged_) counts_.assign(lengths_.size(), queries > 0 ? queries : problem_.query_length);
    capacity_ = *std::max_element(lengths_.begin(), lengths_.end());
    each_ = (capacity_ + page_tokens() - 1) / page_tokens();
    pool_ = 1 + int(lengths_.size()) * each_;
    for (std::size_t s = 0; s < lengths_.size(); ++s)
      for (int i = 0; i < row_stride(); ++i) table_.push_back(i < each_ ? page_of(int(s), i) : kNoPages[i % 4]);
    for (const int side : {0, 1}) {
      place(side);
      store(side);
    }
    Rng rng(3);
    int rows = 0;
    for (const int count : counts_) rows += count;
    for (const float x : rng.normals(std::size_t(rows * heads()) * dim(0))) q_.push_back(f16_from_float(x));
  }
  FreedPages(const FreedPages&) = delete;
  FreedPages& operator=(const FreedPages&) = delete;
  ~FreedPages() {
    for (const Mapping& mapping : mappings_) munmap(mapping.begin, mapping.bytes);
  }

  // The formula of what a query sees, written for this test.
  bool sees(int sequence, int query, int token) const {
    const FeatureSet& set = problem_.features;
    const std::size_t s = std::size_t(sequence);
    const long long place = lengths_[s] - counts_[s] + query + inputs_.position_offset +
                            (inputs_.position_offsets.empty() ? 0 : inputs_.position_offsets[s]);
    if (problem_.causal && token > place) return false;
    if (set.window_left >= 0 && place - token > set.window_left) return false;
    if (set.window_right >= 0 && token - place > set.window_right) return false;
    return inputs_.token_ranges.empty() ||
           (token >= inputs_.token_ranges[2 * s] && token < inputs_.token_ranges[2 * s + 1]);
  }
  bool is_seen(int sequence, int page) const {
    for (int query = 0; query < counts_[std::size_t(sequence)]; ++query)
      for (int t = page * page_tokens(); t < std::min((page + 1) * page_tokens(), lengths_[std::size_t(sequence)]); ++t)
        if (sees(sequence, query, t)) return true;
    return false;
  }
  int sequences() const { return int(lengths_.size()); }
  int pages() const { return each_; }
  int page_tokens() const { return problem_.page_tokens; }
  int& entry(int sequence, int page) { return table_[std::size_t(sequence * row_stride() + page)]; }
  const std::shared_ptr<Program>& program() const { return program_; }

  // Frees the pages of which `keeps(sequence, page)` says no. Returns how many of these have tokens of their sequence.
  int free_pages(const std::function<bool(int, int)>& keeps) {
    int freed = 0;
    for (int s = 0; s < sequences(); ++s)
      for (int i = 0; i < each_; ++i) {
        if (keeps(s, i)) continue;
        if (i * page_tokens() < lengths_[std::size_t(s)]) ++freed;
        entry(s, i) = kNoPages[(s + i) % 4];
        for (const Mapping& mapping : mappings_)
          REQUIRE(mprotect(mapping.pool + std::size_t(page_of(s, i)) * mapping.page, mapping.page, PROT_NONE) == 0);
      }
    return freed;
  }
  int free_unseen() {
    return free_pages([this](int s, int i) { return is_seen(s, i); });
  }

  // Compiles the kernels of a call, which would otherwise be compiled in a child process.
  void warm_up(ManyRows many_rows) { must(attend(many_rows, 0, false)); }
  // How a child process ends that attends and compares with the oracle: 0 is right, 1 is wrong.
  int end_of_attention(ManyRows many_rows, int blocks, bool is_reference) {
    if (exact_.empty()) exact_ = exact();
    return end_of([&] {
      record_ = {};
      const auto ran = attend(many_rows, blocks, is_reference);
      if (!ran) fmt::print("{}\n", ran.error().message);
      return ran && record_.count == 0 && relative_error(out_, exact_) <= kMaxKernelError;
    });
  }
  Result<LaunchReport> attend(ManyRows many_rows, int blocks, bool is_reference) {
    AttentionCall call = this->call();
    call.many_rows = many_rows, call.blocks = blocks;
    workspace_.assign(program_->workspace_bytes(call) + 16, 0);
    const DevicePointer at = (reinterpret_cast<DevicePointer>(workspace_.data()) + 15) / 16 * 16;
    return is_reference ? program_->reference(call, at, nullptr) : program_->attention(call, at, nullptr);
  }
  // What the check of a program with checks says of the table as it is.
  kv::CheckRecord checked() {
    record_ = {};
    must(attend(ManyRows::chosen, 0, false));
    return record_;
  }

  // The arguments of the codec for tokens from `first` on. They go from or to x, [sequence][token][head][dim].
  kv::CodecArgs codec_args(int side, int first, int tokens, std::vector<float>& x) const {
    kv::CodecArgs args{};
    const auto row = (long long)(dim(side));
    args.x = {x.data(), tokens * kKvHeads * row, kKvHeads * row, row};
    args.x_type = kv::RowType::f32;
    args.side = sides_[side];
    args.first_token = first, args.sequences = sequences(), args.tokens = tokens, args.heads = kKvHeads;
    args.tensor_scale = 1;
    return args;
  }
  kv::PageTable table() const { return {table_.data(), row_stride()}; }
  const kv::CacheSide& side(int side) const { return sides_[side]; }
  // The rows of tokens from `first` on, as they were read back: [sequence][token][head][dim].
  std::vector<float> decoded(int side, int first, int tokens) const {
    std::vector<float> rows;
    for (int s = 0; s < sequences(); ++s) {
      const auto row = kKvHeads * std::ptrdiff_t(dim(side)), from = (std::ptrdiff_t(s) * capacity_ + first) * row;
      rows.insert(rows.end(), decoded_[side].begin() + from, decoded_[side].begin() + from + tokens * row);
    }
    return rows;
  }

 private:
  static constexpr int kNoPages[] = {0, -1, 1000000, std::numeric_limits<int>::min()};
  static constexpr std::size_t kMemoryPage = 4096;
  struct Mapping {
    std::uint8_t *begin, *pool;  // the mapping; page 0 of the pool
    std::size_t bytes, page;     // of the mapping; from page to page of the pool
  };

  std::size_t dim(int side) const { return std::size_t(problem_.dim(side)); }
  int heads() const { return kKvHeads * problem_.q_heads_per_kv; }
  int row_stride() const { return each_ + 2; }
  // Pages of a sequence lie in turns with those of the others, backwards.
  int page_of(int sequence, int i) const { return pool_ - 1 - (i * sequences() + sequence); }

  // Places a side's pool so that its pages begin at pages of memory, with as much unreadable memory before and after it
  // as a page takes. Page 0 is unreadable.
  void place(int side) {
    if (side == 1 && problem_.values_in_keys) {
      sides_[1] = sides_[0];
      return;
    }
    const ProgramSource& source = program_->source();
    const SideGeometry geometry =
        side_geometry(source, side == 0 ? source.k : source.v, 1, kKvHeads, (long long)(pool_)*page_tokens());
    const std::size_t stored = std::size_t(geometry.strides.codes_sequence_stride),
                      page = (stored + kMemoryPage - 1) / kMemoryPage * kMemoryPage,
                      bytes = page * std::size_t(pool_ + 2);
    auto* const begin = static_cast<std::uint8_t*>(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(begin != MAP_FAILED);
    std::uint8_t* const pool = begin + page;
    REQUIRE(mprotect(pool + page, page * std::size_t(pool_ - 1), PROT_READ | PROT_WRITE) == 0);
    std::fill_n(pool + page, page * std::size_t(pool_ - 1), std::uint8_t(0xff));
    mappings_.push_back({begin, pool, bytes, page});
    sides_[side] = at(geometry, reinterpret_cast<DevicePointer>(pool));
    sides_[side].codes_sequence_stride = (long long)(page);
    if (sides_[side].scales_sequence_stride != 0) sides_[side].scales_sequence_stride = (long long)(page);
  }
  void store(int side) {
    Rng rng(std::uint64_t(side) + 1);
    const std::size_t count = std::size_t(sequences() * capacity_ * kKvHeads) * dim(side);
    x_[side] = rng.normals(count);
    const bool is_stored = side == 1 && problem_.values_in_keys;
    CheckBounds check;
    check.record = &record_, check.k_pages = check.v_pages = pool_;
    if (!is_stored) must(program_->quantize(side, codec_args(side, 0, capacity_, x_[side]), nullptr, table(), check));
    decoded_[side].resize(count);
    must(program_->dequantize(side, codec_args(side, 0, capacity_, decoded_[side]), nullptr, table(), check));
  }

  AttentionCall call() {
    AttentionCall call;
    const auto rows = std::size_t(q_.size()) / dim(0);
    out_.assign(rows * dim(1), -7.f);
    call.k = sides_[0], call.v = sides_[1];
    call.k_table = call.v_table = table();
    call.sequences = sequences(), call.kv_heads = kKvHeads;
    call.tokens = capacity_, call.lengths = lengths_.data();
    call.check = {&record_, pool_, pool_, 0};
    const auto rows_of = [&](void* data, int side) {
      const auto row = (long long)(dim(side));
      return kv::Rows{data, is_ragged_ ? 0 : counts_[0] * heads() * row, heads() * row, row};
    };
    call.q = rows_of(q_.data(), 0), call.out = rows_of(out_.data(), 1);
    call.queries = problem_.varlen ? *std::max_element(counts_.begin(), counts_.end()) : 0;
    if (is_ragged_) {
      starts_ = {0};
      for (const int count : counts_) starts_.push_back(starts_.back() + count);
      call.query_starts = starts_.data(), call.query_rows = starts_.back();
    }
    if (!inputs_.token_ranges.empty()) call.features.token_ranges = inputs_.token_ranges.data();
    if (!inputs_.position_offsets.empty()) call.features.position_offsets = inputs_.position_offsets.data();
    call.features.position_offset = inputs_.position_offset;
    if (problem_.append) {
      new_[0].clear(), new_[1].clear();
      for (const int side : {0, 1})
        for (int s = 0; s < sequences(); ++s)
          for (int i = 0; i < counts_[0]; ++i)
            for (std::size_t e = 0; e < kKvHeads * dim(side); ++e) {
              const int token = std::max(lengths_[std::size_t(s)] - counts_[0] + i, 0);
              new_[side].push_back(x_[side][std::size_t(s * capacity_ + token) * kKvHeads * dim(side) + e]);
            }
      const auto new_rows = [&](int side) {
        const auto row = (long long)(dim(side));
        return kv::Rows{new_[side].data(), counts_[0] * kKvHeads * row, kKvHeads * row, row};
      };
      call.new_k = new_rows(0), call.new_v = new_rows(1), call.new_type = kv::RowType::f32;
    }
    return call;
  }

  // The oracle's answer, in the order of `out`: [sequence][query][head][dim].
  std::vector<double> exact() const {
    std::vector<double> all;
    std::size_t first_row = 0;
    for (int s = 0; s < sequences(); ++s) {
      const int length = lengths_[std::size_t(s)], queries = counts_[std::size_t(s)];
      std::vector<double> attended[2], q(std::size_t(heads() * queries) * dim(0));
      for (const int side : {0, 1})
        for (int head = 0; head < kKvHeads; ++head)
          for (int t = 0; t < length; ++t)
            for (std::size_t e = 0; e < dim(side); ++e)
              attended[side].push_back(
                  decoded_[side][(std::size_t(s * capacity_ + t) * kKvHeads + std::size_t(head)) * dim(side) + e]);
      const auto place = [&](int head, int query, std::size_t dim) {
        return (first_row + std::size_t(query * heads() + head)) * dim;
      };
      for (int head = 0; head < heads(); ++head)
        for (int query = 0; query < queries; ++query)
          for (std::size_t e = 0; e < dim(0); ++e)
            q[std::size_t(head * queries + query) * dim(0) + e] = float_from_f16(q_[place(head, query, dim(0)) + e]);
      OracleCase one{heads(), kKvHeads, queries, length, int(dim(0)), false, 0, int(dim(1))};
      one.added = [&](int, int query, int token) {
        return sees(s, query, token) ? 0. : -std::numeric_limits<double>::infinity();
      };
      const auto out = oracle_attention(one, q, attended[0], attended[1]);
      for (int query = 0; query < queries; ++query)
        for (int head = 0; head < heads(); ++head) {
          const auto row = out.begin() + std::ptrdiff_t(std::size_t(head * queries + query) * dim(1));
          all.insert(all.end(), row, row + std::ptrdiff_t(dim(1)));
        }
      first_row += std::size_t(heads() * queries);
    }
    return all;
  }

  Problem problem_;
  std::shared_ptr<Program> program_;
  std::vector<int> lengths_;
  SeenInputs inputs_;
  bool is_ragged_;
  std::vector<int> counts_, starts_;
  int capacity_ = 0, each_ = 0, pool_ = 0;  // tokens and pages of each sequence; pages of the pool
  std::vector<int> table_;
  std::vector<Mapping> mappings_;
  kv::CacheSide sides_[2]{};
  std::vector<float> x_[2], decoded_[2], new_[2], out_;
  std::vector<double> exact_;  // the oracle's answer, once a call has asked for it
  std::vector<std::uint16_t> q_;
  std::vector<std::uint8_t> workspace_;
  kv::CheckRecord record_{};
};

}  // namespace kvjit::test
