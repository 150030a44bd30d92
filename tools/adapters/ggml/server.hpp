// Server: the kvjit context of one device of ggml, its programs, and the attention that they serve.
//
// A node of up to kMostExact queries has a program of its own number of queries. Longer ones share a program of
// run-time query lengths. A program that was ready once stays ready, so a node that supports_op has claimed is served.
// Where the policy wants the cache to be read in another way than the plain one, the program for that serves as soon as
// it is ready, and the plain one until then.
// SPDX-License-Identifier: MIT
#pragma once
#include <compare>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "library.hpp"
#include "node.hpp"

namespace kvjit::plugin {

class Server;

// The workspace of the calls of one stream. It only grows, and what it had before stays allocated as long as it lives:
// captured graphs may hold it.
class Workspace {
 public:
  explicit Workspace(Server& server) : server_(server) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();
  void* memory(std::size_t bytes, std::string& why);  // null, and why, if there is none

 private:
  Server& server_;
  std::vector<void*> blocks_;  // the last one is in use
  std::size_t bytes_ = 0;      // of that
};

// The ranges of tokens that masks show, of the calls of one stream. They are found once for each mask of a graph.
// Memory stays allocated, as that of a workspace: the n-th mask of every graph has the n-th block.
class MaskRanges {
 public:
  explicit MaskRanges(Server& server) : server_(server) {}
  MaskRanges(const MaskRanges&) = delete;
  MaskRanges& operator=(const MaskRanges&) = delete;
  ~MaskRanges();
  void begin_graph() { found_.clear(); }  // the masks of a new graph may show other tokens
  // The ranges of a call over a node's mask; a kernel that finds them is queued if this graph has not asked yet. Null,
  // and why, if that failed.
  const int* of(const Node& node, kvjit_program* program, const kvjit_attention_call& call, std::string& why);

 private:
  // Two tensors of a graph may have the same memory, one after the other, so a mask is known by its tensor.
  using Key = std::tuple<const ggml_tensor*, int, int, int>;  // mask, sequences, tokens, queries
  struct Block {
    int* memory = nullptr;
    int sequences = 0;
  };
  Server& server_;
  std::vector<Block> blocks_;
  std::vector<void*> outgrown_;
  std::map<Key, const int*> found_;
};

enum class Answer { ready, compiling, refused };

class Server {
 public:
  // The server of a device, opened at the first question; null, and why, if there is none. The CPU back-end serves CPU
  // devices.
  static Server* of(ggml_backend_dev_t device, std::string& why);

  // Whether the node can be served. If a program is missing it is requested; with may_wait the answer comes when it is
  // ready. Else the first question waits for some milliseconds: long enough for a kernel from a bundle or from disk, so
  // that the first CUDA graph that ggml captures has it. `why` says what is refused.
  Answer ask(const Node& node, bool may_wait, std::string& why);

  // Queues the node on a stream. False, and why, if a call was refused; then the output may be partly written.
  bool attend(const Node& node, void* stream, Workspace& workspace, MaskRanges& ranges, std::string& why);

  // Ends the compiles under way, of all servers: a compiler must not work while the process unloads its library. A
  // program that was not ready is requested again when a node asks for it.
  static void end_requests();

  bool is_gpu() const { return ordinal_ >= 0; }
  int ordinal() const { return ordinal_; }
  const Library& library() const { return library_; }
  kvjit_context* context() const { return context_; }

 private:
  static constexpr int kMostExact = 8, kPatienceMs = 50;

  // A Key holds the parameters of spec_of(). Equal keys are equal programs.
  struct Key {
    int k_type, v_type, head_dim_k, head_dim_v, group, queries;
    int token_heads;  // KV heads that are read at once; 0: one by one
    bool token_ranges, has_mask, has_slopes, has_sinks;
    float softcap;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    Answer answer = Answer::compiling;
    kvjit_program* program = nullptr;
    kvjit_request* request = nullptr;
    Reading reading;
    std::string why, name;
  };
  Server(const Library& library, kvjit_context* context, int ordinal)
      : library_(library), context_(context), ordinal_(ordinal) {}
  static Server* open(ggml_backend_dev_t device, std::string& why);
  static Key key_of(const Node& node, int queries, const Reading& reading);
  Entry& entry_of(const Node& node, int queries, const Reading& reading, bool may_wait);
  Entry& best_entry(const Node& node, bool may_wait);
  void finish(Entry& entry, kvjit_status status, const kvjit_error& error);
  const float* slopes(const Node& node, std::string& why);

  const Library& library_;
  kvjit_context* context_;
  int ordinal_;  // of the GPU, by the driver's numbers; -1: the CPU back-end
  std::mutex mutex_;
  std::map<Key, Entry> programs_;
  std::map<std::pair<float, int>, const float*> slopes_;  // by max_bias and query heads, in device memory
};

}  // namespace kvjit::plugin
