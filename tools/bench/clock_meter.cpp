// Compiles and launches the kernel of ClockMeter: see clock_meter.hpp.
// SPDX-License-Identifier: MIT
#include "tools/bench/clock_meter.hpp"

#include <utility>

#include "args/clock.cuh"
#include "generator/kernels/auxiliary/emit.hpp"

namespace kvjit {
namespace {

constexpr kv::i64 kNanoseconds = 200'000;  // long beside the resolution of the timer

}  // namespace

Result<ClockMeter> ClockMeter::make(std::shared_ptr<Context> context, const Registry& registry) {
  ClockMeter meter;
  KV_TRY(record, context->get(emit_clock(context->backend()->info().arch, registry)));
  KV_TRY(counts, Buffer::make(context->backend(), 2 * sizeof(kv::i64)));
  KV_CHECK(context->backend()->fill(counts.pointer(), 0, counts.bytes()));
  meter.record_ = std::move(record);
  meter.counts_ = std::move(counts);
  meter.context_ = std::move(context);
  return meter;
}

Result<double> ClockMeter::measure() const {
  Backend& backend = *context_->backend();
  auto* const counts = reinterpret_cast<kv::i64*>(counts_.pointer());
  kv::ClockArgs args{counts, counts + 1, kNanoseconds};
  KV_CHECK(backend.launch(*record_.kernel, Grid{1}, &args, nullptr));
  KV_CHECK(backend.synchronize(nullptr));
  kv::i64 counted[2] = {};
  KV_CHECK(backend.copy_to_host(counted, counts_.pointer(), sizeof counted));
  if (counted[1] <= 0) return fail(Code::internal, "the device's timer did not advance");
  return 1e3 * double(counted[0]) / double(counted[1]);
}

}  // namespace kvjit
