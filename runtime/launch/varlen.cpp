// Run-time query lengths (attention.query_length = "any"). A program has a bucket for each range of queries
// (ProgramSource::buckets). A sequence takes the bucket that its own number of queries falls in, whatever else is in
// the batch. Where the host knows that number, one bucket is launched. The numbers of a ragged batch are on the device,
// so each bucket that they may fall in is launched, and passes over the sequences of the others.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/launch/kv_checks.hpp"
#include "runtime/launch/prefill.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit {

Result<std::vector<Program::BucketLengths>> Program::buckets_of(const AttentionCall* call) const {
  const bool has_prefill = source_.prefill_rows > 0,
             has_last = buckets_.back()->source_.kernels.count(Role::decode) == 0;
  const std::size_t decode_buckets = buckets_.size() - (has_last ? 1 : 0);
  const int most_by_decode = buckets_[decode_buckets - 1]->source_.query_length;
  const ManyRows many_rows = call ? call->many_rows : ManyRows::chosen;
  if (call && (call->queries < 1 || call->queries > source_.query_length))
    return refuse(fmt::format("{} queries of a sequence; program {} serves 1 to {}", call->queries, source_.id,
                              source_.query_length));
  if (call && (has_last || many_rows == ManyRows::two_pass)) {
    KV_TRY(in_two_passes, takes_two_passes(buckets_.back()->source_, context_->backend()->info(), *call));
    if (in_two_passes)
      return std::vector{BucketLengths{buckets_.back().get(), {1, source_.query_length, false, false}}};
  }
  if (many_rows == ManyRows::prefill && !has_prefill)
    return fail(Code::unsupported, fmt::format("program {} has no prefill kernel", source_.id), {},
                {"`kvjit explain` says why"});
  if (many_rows == ManyRows::decode && call->queries > most_by_decode)
    return fail(Code::unsupported,
                fmt::format("{} queries of a sequence by decode; program {} has decode for up to {}, and prefill",
                            call->queries, source_.id, most_by_decode));
  // Prefill serves from this number of queries on. The CPU back-end takes it only where there is no decode.
  const bool is_gpu = context_->backend()->info().is_gpu;
  const bool is_chosen = source_.prefill_choice == PrefillChoice::always && is_gpu && many_rows == ManyRows::chosen;
  const int least_by_prefill = !has_prefill                     ? source_.query_length + 1
                               : many_rows == ManyRows::prefill ? 1
                               : is_chosen                      ? source_.least_prefill_queries
                                                                : most_by_decode + 1;
  std::vector<BucketLengths> taken;
  const auto take = [&](const std::unique_ptr<Program>& bucket, int least, int most) {
    const bool may_have = !call || (least <= call->queries && (call->query_starts || call->queries <= most));
    if (least <= most && may_have) taken.push_back({bucket.get(), {least, most, false, false}});
  };
  int least = 1;
  for (std::size_t i = 0; i < decode_buckets; ++i) {
    const int most = buckets_[i]->source_.query_length;
    take(buckets_[i], least, std::min(most, least_by_prefill - 1));
    least = most + 1;
  }
  if (has_prefill)
    take(buckets_.back(), least_by_prefill, source_.query_length);
  else if (has_last && !call)
    take(buckets_.back(), 1, source_.query_length);  // calls in two passes
  return taken;
}

Result<LaunchReport> Program::run_buckets(const AttentionCall& call, DevicePointer workspace, Stream stream) const {
  KV_TRY(taken, buckets_of(&call));
  LaunchReport report;
  if (source_.checks) {
    KV_CHECK(launch_check(check_args(call), call.check, stream));
    report.kernels.push_back(record(Role::check)->name);
  }
  taken.front().lengths.is_first = taken.back().lengths.is_last = true;
  for (const BucketLengths& one : taken) {
    AttentionCall own = call;
    if (one.bucket->source_.kernels.count(Role::decode) != 0) own.many_rows = ManyRows::decode;
    KV_TRY(ran, one.bucket->run(false, own, workspace, stream, one.lengths));
    report.kernels.insert(report.kernels.end(), ran.kernels.begin(), ran.kernels.end());
    report.blocks = std::max(report.blocks, ran.blocks);
    report.converted_bytes += ran.converted_bytes;
  }
  return finish_report(call, std::move(report));
}

}  // namespace kvjit
