// Compiles and times the probe's launches: see probe.hpp.
// SPDX-License-Identifier: MIT
#include "tools/bench/probe.hpp"

#include <utility>

#include "args/attention.cuh"
#include "generator/kernels/auxiliary/emit.hpp"

namespace kvjit {
namespace {

// The launches that are timed. Device and size decide which one is fastest, by a few per cent at most.
constexpr int kUnrolls[] = {2, 4};
constexpr int kBlocksPerMultiprocessor[] = {2, 4};
constexpr long long kVectorBytes = 16;
constexpr kv::u32 kNeedle = 0x6b766a69;  // an arbitrary word; a kernel that reads it writes it, and nothing reads that

}  // namespace

Result<Probe> Probe::make(std::shared_ptr<Context> context, const Registry& registry) {
  Probe probe;
  for (const int unroll : kUnrolls) {
    Source source = emit_probe(unroll, context->backend()->info().arch, registry);
    KV_TRY(record, context->get(source));
    probe.kernels_.push_back({unroll, std::move(source), std::move(record)});
  }
  KV_TRY(sink, Buffer::make(context->backend(), sizeof(kv::u32)));
  probe.sink_ = std::move(sink);
  probe.context_ = std::move(context);
  return probe;
}

Result<ProbeTiming> Probe::time(const std::vector<DevicePointer>& places, std::size_t bytes, int repeats) const {
  Backend& backend = *context_->backend();
  ProbeTiming best;
  for (const Loaded& kernel : kernels_)
    for (const int blocks : kBlocksPerMultiprocessor) {
      const Grid grid{static_cast<unsigned>(blocks * backend.info().multiprocessors)};
      kv::ProbeArgs args{};
      args.vectors = static_cast<long long>(bytes) / kVectorBytes;
      args.step = static_cast<long long>(grid.x) * kernel.source.threads;
      args.found = reinterpret_cast<kv::u32*>(sink_.pointer());
      args.needle = kNeedle;
      const auto work = [&](Stream stream, int buffer_set) {
        args.from = reinterpret_cast<const kv::u8*>(places[static_cast<std::size_t>(buffer_set)]);
        return backend.launch(*kernel.record.kernel, grid, &args, stream);
      };
      KV_TRY(timing, backend.time(work, repeats, static_cast<int>(places.size())));
      if (best.unroll == 0 || timing.median_us < best.timing.median_us) best = {timing, kernel.unroll, blocks};
    }
  return best;
}

}  // namespace kvjit
