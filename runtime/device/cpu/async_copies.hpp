// Asynchronous copies to shared memory on the CPU back-end. Data arrives as late as the rules of PTX allow, so a kernel
// that reads too early computes wrong results. Functions that return text describe the rule that the kernel broke; an
// empty text means that it broke none.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace kvjit {

// One lane's asynchronous copies (templates/device/simt.cuh), in groups. A group arrives when it is waited for.
class CopyQueue {
 public:
  std::string add(void* to, const void* from, int bytes, int valid);
  void commit() { groups_.push_back(pending_.size()); }
  std::string wait(int groups_left);
  std::size_t pending() const { return pending_.size(); }
  void begin_block() { groups_.clear(); }  // a block may end with empty committed groups, but not with copies

 private:
  struct Copy {
    unsigned char* to;
    const unsigned char* from;
    int bytes, valid;
  };
  std::vector<Copy> pending_;
  std::vector<std::size_t> groups_;  // end of each committed group in `pending_`
};

// One block's barriers of bulk copies (templates/device/bulk_copy.cuh). A copy fills its destination with NaN as soon
// as it is queued, and its data arrives when the phase that expects it is waited for. So the old data ends as early,
// and the new data comes as late, as the rules allow. Opening and closing a barrier also overwrites its bytes.
class BulkBarriers {
 public:
  std::string open(void* at, unsigned arrivals);
  std::string close(void* at);
  std::string arrive(void* at, unsigned bytes);
  std::string copy(void* to, const void* from, unsigned bytes, void* at);
  std::string end_block();  // closes every barrier

  bool is_open(void* at) const { return barriers_.count(at) != 0; }
  // Whether the phase of that parity is over. Lets the copies arrive that the phase waits for.
  bool is_over(void* at, unsigned parity);

 private:
  struct Copy {
    void* to;
    const void* from;
    unsigned bytes;
  };
  struct Barrier {
    unsigned arrivals = 0, missing = 0, phase = 0;
    unsigned long long expected = 0, queued = 0;  // bytes of this phase: expected by arrivals, and queued in copies
    std::vector<Copy> copies;
    void settle();
  };
  std::map<void*, Barrier> barriers_;
};

}  // namespace kvjit
