// The block scheduler of the CPU back-end: see block_scheduler.hpp. Fibres are created once and loop over blocks,
// because creating one takes microseconds and switching to one takes tens of nanoseconds. Time passes in rounds: every
// lane that can run does so until it waits or ends; then each group whose lanes all wait is released as a whole.
// SPDX-License-Identifier: MIT
#include "runtime/device/cpu/block_scheduler.hpp"

#include <fmt/format.h>

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "device/cpu.hpp"
#include "runtime/device/cpu/lane.hpp"

namespace kvjit {
namespace {

using boost::context::fiber;

constexpr int kMaxThreads = 1024;                // threads of a block, on every CUDA GPU
constexpr std::size_t kMaxShared = 256 * 1024;   // bytes: above the 227 KiB of any GPU so far
constexpr std::size_t kGuard = 1024;             // bytes before and after shared memory: its alignment is 1024 bytes
constexpr unsigned char kGuardByte = 0xa5;       // differs from kPoison, so that writing NaNs past the end is detected
constexpr unsigned char kPoison = 0xff;          // NaN as f16, bf16 and f32; -1 as an integer
constexpr std::size_t kStackBytes = 128 * 1024;  // bytes of address space; only touched pages take memory
constexpr std::size_t kShownGroups = 8;          // places listed in a deadlock report

using WarpSlots = unsigned[2][32][kv::cpu::kSlotWords];

struct FreeBytes {
  void operator()(unsigned char* bytes) const { std::free(bytes); }
};

class Scheduler {
 public:
  ~Scheduler() { unwind(); }
  Result<void> run(const std::function<void()>& body, Grid grid, int threads, std::size_t shared_bytes, unsigned seed);

  void wait(kv::cpu::Wait what, Site site);
  bool vote(int warps, bool mine, Site site);
  void copy_async(void* to, const void* from, int bytes, int valid);
  void copy_commit() { running_->copies.commit(); }
  void copy_wait(int groups_left) { keep_rule(running_->copies.wait(groups_left)); }
  void wait_phase(void* barrier, unsigned parity, Site site);
  void* named_barrier(int number, unsigned arrivals);
  void copy_bulk(void* to, const void* from, unsigned bytes, void* barrier);
  void keep_rule(const std::string& broken) {
    if (!broken.empty()) stop(broken);
  }
  BulkBarriers barriers;
  void agree(bool mine, Site site) { keep_rule(warp_of(*running_).agree(*running_, mine, site)); }
  void refuse(Site site) {
    stop(fmt::format("{}: what the kernel requires of its caller does not hold", to_string(site)));
  }

  kv::cpu::Lane* self = nullptr;  // Host::self points here

 private:
  bool run_block();
  void begin_block(unsigned x, unsigned y, unsigned z);
  void resume(LaneState& lane);
  void unwind();
  void finish_lane(LaneState& lane);
  void check_agreements(int first);
  WarpState& warp_of(const LaneState& lane) { return warps_[static_cast<std::size_t>(lane.view.thread / 32)]; }
  std::vector<int> take_ready();
  void release_groups();
  void release_team(int warps, int first_warp);
  bool same_site(int first, int last);
  bool is_shared(const void* at, std::size_t bytes) const {
    const auto from = static_cast<const unsigned char*>(at) - (shared_.get() + kGuard);
    return from >= 0 && static_cast<std::size_t>(from) + bytes <= shared_bytes_;
  }
  void check_guard();
  std::string describe_waiting() const;
  std::string block_name() const;
  void record(std::string message) {
    if (!error_) error_ = Error{Code::internal, std::move(message)};
  }
  void stop(std::string message);
  void yield() {
    const StackChange change(scheduler_stack_, &scheduler_stack_);
    scheduler_ = std::move(scheduler_).resume();
  }

  std::vector<LaneState> lanes_ = std::vector<LaneState>(kMaxThreads);
  std::vector<WarpState> warps_;
  std::unique_ptr<WarpSlots[]> slots_{new WarpSlots[kMaxThreads / 32]};
  std::unique_ptr<unsigned char, FreeBytes> shared_{
      static_cast<unsigned char*>(std::aligned_alloc(kGuard, kMaxShared + 2 * kGuard))};
  std::vector<int> ready_;
  std::array<std::uint64_t, 2> named_barriers_{};  // places of barriers outside shared memory
  int favoured_ = -1;                              // shuffled order: the warp that runs
  fiber scheduler_;
  Stack scheduler_stack_;
  LaneState* running_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::optional<Error> error_;
  std::exception_ptr thrown_;
  std::mt19937_64 random_;
  bool is_shuffled_ = false;
  int threads_ = 0, live_ = 0, at_block_ = 0, at_barrier_ = 0;
  std::size_t shared_bytes_ = 0;
};

std::string Scheduler::block_name() const {
  const kv::cpu::Lane& view = lanes_[0].view;
  return fmt::format("block ({}, {}, {})", view.block_x, view.block_y, view.block_z);
}

// Stops a lane that broke a rule, on its own fibre. The fibre never runs again; run() unwinds it.
void Scheduler::stop(std::string message) {
  record(fmt::format("{}: {}, lane {}", message, block_name(), running_->view.thread));
  yield();
}

void Scheduler::wait(kv::cpu::Wait what, Site site) {
  LaneState& lane = *running_;
  lane.site = site;
  if (what == kv::cpu::Wait::warp) {
    lane.state = State::at_warp;
    ++warp_of(lane).at_warp;
  } else {
    lane.state = State::at_block;
    ++at_block_;
  }
  yield();
}

bool Scheduler::vote(int warps, bool mine, Site site) {
  LaneState& lane = *running_;
  const int first = lane.view.thread / 32 / warps * warps;
  if (static_cast<std::size_t>(first + warps) > warps_.size()) {
    stop(fmt::format("{}: a team of {} warps from warp {} on, of {}", to_string(site), warps, first, warps_.size()));
    return false;
  }
  lane.site = site, lane.team = warps, lane.vote = mine;
  lane.state = State::at_team;
  ++warp_of(lane).at_team;
  yield();
  return lane.vote;
}

void Scheduler::copy_async(void* to, const void* from, int bytes, int valid) {
  if (!is_shared(to, bytes))
    return stop(fmt::format("asynchronous copy to outside the block's {} bytes of shared memory", shared_bytes_));
  keep_rule(running_->copies.add(to, from, bytes, valid));
}

void Scheduler::wait_phase(void* barrier, unsigned parity, Site site) {
  if (!barriers.is_open(barrier)) return stop(fmt::format("{}: a wait at a barrier that is not open", to_string(site)));
  if (barriers.is_over(barrier, parity)) return;
  LaneState& lane = *running_;
  lane.site = site, lane.barrier = barrier, lane.parity = parity;
  lane.state = State::at_barrier;
  ++at_barrier_;
  yield();
}

void* Scheduler::named_barrier(int number, unsigned arrivals) {
  void* const barrier = &named_barriers_[static_cast<std::size_t>(number)];
  if (!barriers.is_open(barrier)) keep_rule(barriers.open(barrier, arrivals));
  return barrier;
}

void Scheduler::copy_bulk(void* to, const void* from, unsigned bytes, void* barrier) {
  if (!is_shared(to, bytes))
    return stop(fmt::format("bulk copy to outside the block's {} bytes of shared memory", shared_bytes_));
  keep_rule(barriers.copy(to, from, bytes, barrier));
}

void Scheduler::finish_lane(LaneState& lane) {
  if (lane.copies.pending() > 0)
    record(fmt::format("{} asynchronous copies were never waited for: {}, lane {}", lane.copies.pending(), block_name(),
                       lane.view.thread));
  if (lane.view.product_count > 0)
    record(fmt::format("{}:{}: a product of wgmma was never waited for: {}, lane {}", lane.view.products[0].file,
                       lane.view.products[0].line, block_name(), lane.view.thread));
  lane.state = State::done;
  if (--warp_of(lane).live == 0) check_agreements(lane.view.thread / 32 * 32);
  --live_;
}

// Reports lanes of an ended warp that took part in fewer warp-uniform conditions than others.
void Scheduler::check_agreements(int first) {
  for (int i = first; i < std::min(first + 32, threads_); ++i) {
    const LaneState& lane = lanes_[static_cast<std::size_t>(i)];
    if (const auto broken = warp_of(lane).left_out(lane); !broken.empty())
      return record(fmt::format("{}: {}, lane {}", broken, block_name(), i));
  }
}

void Scheduler::resume(LaneState& lane) {
  if (!lane.context)
    lane.context =
        fiber(std::allocator_arg, StackSource(kStackBytes, lane.stack), [this, &lane](fiber&& from) -> fiber {
          StackChange::begin(scheduler_stack_);
          struct AtEnd {
            const Stack& to;
            ~AtEnd() { StackChange::end(to); }
          } at_end{scheduler_stack_};
          scheduler_ = std::move(from);
          for (;;) {
            try {
              (*body_)();
              finish_lane(lane);
            } catch (const boost::context::detail::forced_unwind&) {
              throw;
            } catch (...) {  // no memory in a function that the kernel called; run() throws it again
              thrown_ = std::current_exception();
            }
            yield();
          }
        });
  running_ = &lane;
  self = &lane.view;
  const StackChange change(lane.stack);
  lane.context = std::move(lane.context).resume();
}

// Destroys all fibres, which unwinds their stacks. The next launch makes new ones.
void Scheduler::unwind() {
  for (LaneState& lane : lanes_) {
    lane.copies = {};
    if (!lane.context) continue;
    const StackChange change(lane.stack);
    lane.context = {};
  }
}

void Scheduler::begin_block(unsigned x, unsigned y, unsigned z) {
  std::memset(shared_.get() + kGuard, kPoison, shared_bytes_);
  std::memset(slots_.get(), kPoison, warps_.size() * sizeof(WarpSlots));
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    warps_[w].live = std::min(32, threads_ - static_cast<int>(w) * 32);
    warps_[w].at_warp = warps_[w].at_team = 0;
    warps_[w].agreements.clear();
  }
  ready_.clear();
  favoured_ = -1;
  for (int i = 0; i < threads_; ++i) {
    LaneState& lane = lanes_[static_cast<std::size_t>(i)];
    lane.view.block_x = static_cast<int>(x);
    lane.view.block_y = static_cast<int>(y);
    lane.view.block_z = static_cast<int>(z);
    lane.view.parity = 0;
    lane.view.awaited = 0;
    lane.view.product_count = lane.view.product_group = 0;
    lane.next_agreement = 0;
    lane.state = State::ready;
    lane.copies.begin_block();
    ready_.push_back(i);
  }
  live_ = threads_;
  at_block_ = at_barrier_ = 0;
  (void)barriers.end_block();
}

// Whether the live lanes of first..last-1 wait at one source line. If not, records the lines of two of them.
bool Scheduler::same_site(int first, int last) {
  const LaneState* one = nullptr;
  for (int i = first; i < last; ++i) {
    const LaneState& lane = lanes_[static_cast<std::size_t>(i)];
    if (lane.state == State::done) continue;
    if (!one) one = &lane;
    if (lane.site == one->site) continue;
    record(fmt::format("divergent collective: {} against {}: {}, lanes {} and {}", to_string(one->site),
                       to_string(lane.site), block_name(), one->view.thread, i));
    return false;
  }
  return true;
}

void Scheduler::release_groups() {
  const auto release = [&](int first, int last) {
    if (!same_site(first, last)) return;
    for (int i = first; i < last; ++i) {
      LaneState& lane = lanes_[static_cast<std::size_t>(i)];
      if (lane.state == State::done) continue;
      lane.state = State::ready;
      ready_.push_back(i);
    }
  };
  if (at_block_ == live_) {
    at_block_ = 0;
    return release(0, threads_);
  }
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    WarpState& warp = warps_[w];
    if (warp.live == 0 || warp.at_warp != warp.live) continue;
    warp.at_warp = 0;
    const int first = static_cast<int>(w) * 32;
    release(first, std::min(first + 32, threads_));
  }
  for (std::size_t i = 0; i < lanes_.size() && at_barrier_ > 0; ++i) {
    LaneState& lane = lanes_[i];
    if (lane.state != State::at_barrier || !barriers.is_over(lane.barrier, lane.parity)) continue;
    lane.state = State::ready;
    --at_barrier_;
    ready_.push_back(static_cast<int>(i));
  }
  for (std::size_t w = 0; w < warps_.size() && !error_; ++w)
    if (warps_[w].at_team > 0 && lanes_[w * 32].state == State::at_team &&
        w % static_cast<std::size_t>(lanes_[w * 32].team) == 0)
      release_team(lanes_[w * 32].team, static_cast<int>(w));
}

// Releases a team of warps once all its lanes have voted. Hardware counts lanes, so a team with a lane that has ended
// waits for ever; that is a deadlock here too.
void Scheduler::release_team(int warps, int first_warp) {
  const int first = first_warp * 32, last = std::min(first + warps * 32, threads_);
  bool vote = false;
  for (int i = first; i < last; ++i) {
    const LaneState& lane = lanes_[static_cast<std::size_t>(i)];
    if (lane.state != State::at_team || lane.team != warps) return;
    vote |= lane.vote;
  }
  if (!same_site(first, last)) return;
  for (int w = first_warp; w < first_warp + warps; ++w) warps_[static_cast<std::size_t>(w)].at_team = 0;
  for (int i = first; i < last; ++i) {
    LaneState& lane = lanes_[static_cast<std::size_t>(i)];
    lane.state = State::ready, lane.vote = vote;
    ready_.push_back(i);
  }
}

std::string Scheduler::describe_waiting() const {
  std::string text;
  std::size_t shown = 0;
  for (int first = 0; first < threads_;) {
    const LaneState& lane = lanes_[static_cast<std::size_t>(first)];
    int last = first + 1;
    while (last < threads_ && lanes_[static_cast<std::size_t>(last)].state == lane.state &&
           (lane.state == State::done || lanes_[static_cast<std::size_t>(last)].site == lane.site))
      ++last;
    if (shown++ == kShownGroups) return text + ", ...";
    text += fmt::format("{}lanes {}-{} {}", text.empty() ? "" : ", ", first, last - 1,
                        lane.state == State::done
                            ? "ended"
                            : fmt::format("wait for the {} at {}", awaited(lane.state), to_string(lane.site)));
    first = last;
  }
  return text;
}

void Scheduler::check_guard() {
  const unsigned char* behind = shared_.get() + kGuard + shared_bytes_;
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (behind[i] != kGuardByte)
      return record(fmt::format("shared memory overrun: {} wrote at byte {} of {}", block_name(), shared_bytes_ + i,
                                shared_bytes_));
    if (shared_.get()[i] != kGuardByte)
      return record(fmt::format("shared memory overrun: {} wrote {} bytes before its start", block_name(), kGuard - i));
  }
}

// The lanes that run next. Without a seed, all lanes that can run. With a seed, the lanes of one warp, which runs until
// it must wait for others, so that warps are as far apart as their barriers allow.
std::vector<int> Scheduler::take_ready() {
  std::vector<int> next_lanes = std::exchange(ready_, {});
  if (!is_shuffled_) return next_lanes;
  const auto favoured = [this](int lane) { return lane / 32 == favoured_; };
  if (std::none_of(next_lanes.begin(), next_lanes.end(), favoured))
    favoured_ = next_lanes[random_() % next_lanes.size()] / 32;
  const auto others = std::partition(next_lanes.begin(), next_lanes.end(), favoured);
  ready_.assign(others, next_lanes.end());
  next_lanes.erase(others, next_lanes.end());
  for (std::size_t i = next_lanes.size(); i > 1; --i) std::swap(next_lanes[i - 1], next_lanes[random_() % i]);
  return next_lanes;
}

bool Scheduler::run_block() {
  while (live_ > 0) {
    for (const int i : take_ready()) {
      resume(lanes_[static_cast<std::size_t>(i)]);
      if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
      if (error_) return false;
    }
    if (live_ == 0) break;
    release_groups();
    if (!error_ && ready_.empty()) record(fmt::format("deadlock: {}: {}", block_name(), describe_waiting()));
    if (error_) return false;
  }
  check_guard();
  if (const std::string broken = barriers.end_block(); !broken.empty())
    record(fmt::format("{}: {}", broken, block_name()));
  return !error_;
}

Result<void> Scheduler::run(const std::function<void()>& body, Grid grid, int threads, std::size_t shared_bytes,
                            unsigned seed) {
  // CUDA programming guide, technical specifications per compute capability.
  if (threads < 1 || threads > kMaxThreads)
    return fail(Code::bad_input, fmt::format("{} threads a block; 1 to {} are possible", threads, kMaxThreads));
  if (shared_bytes > kMaxShared)
    return fail(Code::bad_input,
                fmt::format("{} bytes of shared memory a block; at most {} are possible", shared_bytes, kMaxShared));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    return fail(Code::bad_input,
                fmt::format("grid ({}, {}, {}); 1 to (2147483647, 65535, 65535) are possible", grid.x, grid.y, grid.z));
  if (!shared_) return fail(Code::environment, "no memory for the CPU back-end's shared memory");

  threads_ = threads;
  shared_bytes_ = shared_bytes;
  body_ = &body;
  is_shuffled_ = seed != 0;
  random_.seed(seed);
  error_.reset();
  warps_.assign(static_cast<std::size_t>(threads + 31) / 32, {});
  std::memset(shared_.get(), kGuardByte, kGuard);
  std::memset(shared_.get() + kGuard + shared_bytes, kGuardByte, kGuard);
  for (int i = 0; i < threads; ++i) {
    LaneState& lane = lanes_[static_cast<std::size_t>(i)];
    lane.view = {i,
                 threads,
                 0,
                 0,
                 0,
                 static_cast<int>(grid.x),
                 static_cast<int>(grid.y),
                 static_cast<int>(grid.z),
                 shared_.get() + kGuard,
                 slots_[static_cast<std::size_t>(i / 32)],
                 0,
                 &lane.copies};
  }
  // Fibres that did not end are unwound, because the next launch begins new blocks.
  try {
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) {
          begin_block(x, y, z);
          if (run_block()) continue;
          unwind();
          return tl::unexpected<Error>(std::move(*error_));
        }
  } catch (...) {
    unwind();
    throw;
  }
  return {};
}

// The only scheduler of the process. Kernels reach it through plain functions, and launches reuse its stacks.
struct Shared {
  std::mutex mutex;
  Scheduler scheduler;
  kv::cpu::Host host;
};
Shared& shared();

Result<void> run_bound(void (*bind)(const kv::cpu::Host*), const std::function<void()>& body, Grid grid, int threads,
                       std::size_t shared_bytes, unsigned seed) {
  Shared& process = shared();
  const std::lock_guard lock(process.mutex);
  bind(&process.host);
  return process.scheduler.run(body, grid, threads, shared_bytes, seed);
}

Shared& shared() {
  static Shared process;
  static const bool is_bound = [] {
    process.host.self = &process.scheduler.self;
    process.host.wait = [](kv::cpu::Wait what, const char* file, int line) {
      process.scheduler.wait(what, {file, line});
    };
    process.host.vote = [](int warps, bool mine, const char* file, int line) {
      return process.scheduler.vote(warps, mine, {file, line});
    };
    process.host.copy_async = [](void* to, const void* from, int bytes, int valid) {
      process.scheduler.copy_async(to, from, bytes, valid);
    };
    process.host.copy_commit = [] { process.scheduler.copy_commit(); };
    process.host.copy_wait = [](int groups_left) { process.scheduler.copy_wait(groups_left); };
    process.host.open_barrier = [](void* at, unsigned arrivals) {
      process.scheduler.keep_rule(process.scheduler.barriers.open(at, arrivals));
    };
    process.host.named_barrier = [](int number, unsigned arrivals) {
      return process.scheduler.named_barrier(number, arrivals);
    };
    process.host.close_barrier = [](void* at) { process.scheduler.keep_rule(process.scheduler.barriers.close(at)); };
    process.host.arrive = [](void* barrier, unsigned bytes) {
      process.scheduler.keep_rule(process.scheduler.barriers.arrive(barrier, bytes));
    };
    process.host.wait_phase = [](void* barrier, unsigned parity, const char* file, int line) {
      process.scheduler.wait_phase(barrier, parity, {file, line});
    };
    process.host.copy_bulk = [](void* to, const void* from, unsigned bytes, void* barrier) {
      process.scheduler.copy_bulk(to, from, bytes, barrier);
    };
    process.host.agree = [](bool mine, const char* file, int line) { process.scheduler.agree(mine, {file, line}); };
    process.host.refuse = [](const char* file, int line) { process.scheduler.refuse({file, line}); };
    return true;
  }();
  (void)is_bound;
  return process;
}

}  // namespace

Result<void> run_grid(const LaneProgram& program, Grid grid, int threads, std::size_t shared_bytes, const void* args,
                      unsigned seed) {
  return run_bound(
      program.bind, [&program, args] { program.entry(args); }, grid, threads, shared_bytes, seed);
}

Result<void> run_grid(const std::function<void()>& body, Grid grid, int threads, std::size_t shared_bytes,
                      unsigned seed) {
  return run_bound(&kv_cpu_bind, body, grid, threads, shared_bytes, seed);
}

}  // namespace kvjit
