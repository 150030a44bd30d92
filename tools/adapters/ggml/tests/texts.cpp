// Generates texts at temperature 0 in several states of llama.cpp's cache, through its public interface alone. Run with
// and without the plugin, it must print the same lines: ../test compares them.
//
// usage: texts MODEL.gguf TYPE_K TYPE_V GPU_LAYERS SCENARIO... --text FILE [--split none|layer|row] [--margins]
//              [--idle TOKENS]
//
// Prompts are tokens of FILE. A scenario is a name of kScenarios, and words after it, each behind a `+`: `unified` puts
// all sequences into one stream of the cache, `full` gives sliding windows a cache of full size. A line of stdout has
// the scenario and the text of each sequence. Stderr has what the backends were built with. --margins says on stderr by
// how much each token leads. The exit status is 1 if a scenario contradicts itself. --idle is the number of tokens of
// each sequence of the scenario `idle`, which says on stderr how long a step takes. The offsets of prompts are such
// that no token of tinylm is near a tie.
// SPDX-License-Identifier: MIT
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using Tokens = std::vector<llama_token>;
using Texts = std::vector<std::string>;
using Feed = std::vector<std::pair<llama_seq_id, Tokens>>;

constexpr int kContextTokens = 2048, kSequences = 4, kSteps = 16;
constexpr int kPromptTokens = 128, kOddPromptTokens = 300, kSuffixTokens = 4;
constexpr int kStepsToRecapture = 288;  // llama.cpp captures a CUDA graph anew whenever the cache grew by 256 tokens
constexpr int kUbatchTokens = 32, kWideUbatchTokens = 128, kLongUbatchTokens = 512;

void require(bool is_right, const std::string& message) {
  if (!is_right) throw std::runtime_error(message);
}

// A Setup holds the model, the text and the parameters that the sessions of a scenario are made from.
struct Setup {
  llama_model* model = nullptr;
  Tokens text;
  ggml_type type_k = GGML_TYPE_F16, type_v = GGML_TYPE_F16;
  bool has_margins = false, is_unified = false, has_full_windows = false;
  int idle_tokens = 256;

  const llama_vocab* vocabulary() const { return llama_model_get_vocab(model); }
  bool times_steps() const { return idle_tokens > kContextTokens; }
  int context_tokens() const { return times_steps() ? kSequences * (idle_tokens + kStepsToRecapture) : kContextTokens; }
  Tokens prompt(int offset, int count) const {
    Tokens all;
    for (int i = 0; i < count; ++i) all.push_back(text[std::size_t(offset + i) % text.size()]);
    return all;
  }
};

std::string printable(const std::string& bytes) {
  std::string out;
  for (const unsigned char c : bytes) {
    char escaped[5];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", c);
    out += c >= ' ' && c <= '~' && c != '\\' && c != '|' ? std::string(1, char(c)) : escaped;
  }
  return out;
}

// A context of llama.cpp, and for each of its sequences the text, the next position and the token for it.
class Session {
 public:
  struct Sequence {
    int position = 0;
    llama_token next = 0;
    std::string text;
  };

  explicit Session(const Setup& setup, int ubatch = kUbatchTokens) : setup_(setup) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = unsigned(setup.context_tokens());
    params.n_ubatch = unsigned(ubatch);
    params.n_seq_max = kSequences;
    params.n_threads = params.n_threads_batch = 2;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = setup.type_k;
    params.type_v = setup.type_v;
    params.kv_unified = setup.is_unified;
    params.swa_full = setup.has_full_windows;
    context_.reset(llama_init_from_model(setup.model, params));
    require(context_ != nullptr, "llama.cpp makes no context of these parameters");
  }

  llama_context* context() const { return context_.get(); }
  llama_memory_t memory() const { return llama_get_memory(context()); }
  Sequence& at(llama_seq_id id) { return sequences_[id]; }

  // Decodes tokens of several sequences as one batch.
  void feed(const Feed& feed) {
    int count = 0;
    for (const auto& [id, tokens] : feed) count += int(tokens.size());
    llama_batch batch = llama_batch_init(count, 0, 1);
    std::vector<int> ends;
    for (const auto& [id, tokens] : feed) {
      for (const llama_token token : tokens) {
        const int index = batch.n_tokens++;
        batch.token[index] = token;
        batch.pos[index] = at(id).position++;
        batch.n_seq_id[index] = 1;
        batch.seq_id[index][0] = id;
        batch.logits[index] = false;
      }
      ends.push_back(batch.n_tokens - 1);
      batch.logits[ends.back()] = true;
    }
    const int status = llama_decode(context(), batch);
    llama_batch_free(batch);
    require(status == 0, "llama_decode returns " + std::to_string(status));
    for (std::size_t i = 0; i < feed.size(); ++i)
      at(feed[i].first).next = best_of(llama_get_logits_ith(context(), ends[i]));
  }

  // Continues the sequences together.
  void generate(const std::vector<llama_seq_id>& ids, int steps = kSteps) {
    for (int step = 0; step < steps; ++step) {
      Feed next;
      for (const llama_seq_id id : ids) {
        char bytes[256];
        const int length = llama_detokenize(setup_.vocabulary(), &at(id).next, 1, bytes, sizeof bytes, false, true);
        at(id).text.append(bytes, std::size_t(std::max(length, 0)));
        next.push_back({id, {at(id).next}});
      }
      feed(next);
    }
  }

  void remove(llama_seq_id id, int first = -1, int end = -1) {
    require(llama_memory_seq_rm(memory(), id, first, end), "llama.cpp does not remove the tokens of a sequence");
  }

  Texts texts() const {
    Texts all;
    for (const auto& [id, sequence] : sequences_) all.push_back(sequence.text);
    return all;
  }

 private:
  llama_token best_of(const float* logits) const {
    const float* const end = logits + llama_vocab_n_tokens(setup_.vocabulary());
    const float* const best = std::max_element(logits, end);
    const float second = std::max(best == logits ? -1e30f : *std::max_element(logits, best),
                                  best + 1 == end ? -1e30f : *std::max_element(best + 1, end));
    if (setup_.has_margins) std::fprintf(stderr, "margin: %.4f\n", *best - second);
    return llama_token(best - logits);
  }

  const Setup& setup_;
  std::unique_ptr<llama_context, decltype(&llama_free)> context_{nullptr, llama_free};
  std::map<llama_seq_id, Sequence> sequences_;
};

Texts one(const Setup& setup) {
  Session session(setup);
  session.feed({{0, setup.prompt(1940, kPromptTokens)}});
  session.generate({0}, 2 * kSteps);
  return session.texts();
}

// The prompt takes several ubatches, and the last one is not full.
Texts odd(const Setup& setup) {
  Session session(setup, kWideUbatchTokens);
  session.feed({{0, setup.prompt(388, kOddPromptTokens)}});
  session.generate({0});
  return session.texts();
}

// Four prompts of different lengths in one batch. Then one sequence makes way for another prompt while the rest wait.
Texts several(const Setup& setup) {
  constexpr int kOffsets[kSequences] = {549, 3159, 4366, 6000};
  Session session(setup);
  Feed prompts;
  for (int i = 0; i < kSequences; ++i) prompts.push_back({i, setup.prompt(kOffsets[i], kUbatchTokens * (i + 1))});
  session.feed(prompts);
  session.generate({0, 1, 2, 3});
  session.remove(1);
  session.at(1).position = 0;
  session.feed({{1, setup.prompt(9000, kPromptTokens)}});
  session.generate({0, 1, 2, 3});
  return session.texts();
}

// A prompt is copied to three sequences. Each goes on with a suffix of its own, but the last two with the same one.
Texts copies(const Setup& setup) {
  Session session(setup);
  session.feed({{0, setup.prompt(970, kPromptTokens)}});
  Feed suffixes;
  for (int i = 0; i < kSequences; ++i) {
    if (i > 0) llama_memory_seq_cp(session.memory(), 0, i, -1, -1);
    session.at(i).position = kPromptTokens;
    suffixes.push_back({i, setup.prompt(3970 + 500 * std::min(i, 2), kSuffixTokens)});
  }
  session.feed(suffixes);
  session.generate({0, 1, 2, 3});
  require(session.at(2).text == session.at(3).text, "two copies of a prefix go on differently after the same suffix");
  return session.texts();
}

// Early tokens are removed, and the later ones move to their positions.
Texts shift(const Setup& setup) {
  constexpr int kFirst = 16, kShift = 64;
  Session session(setup);
  require(llama_memory_can_shift(session.memory()), "this cache cannot shift");
  session.feed({{0, setup.prompt(1940, kPromptTokens)}});
  session.generate({0});
  session.remove(0, kFirst, kFirst + kShift);
  llama_memory_seq_add(session.memory(), 0, kFirst + kShift, -1, -kShift);
  session.at(0).position -= kShift;
  session.generate({0});
  return session.texts();
}

// A sequence is saved. It must go on as before in a fresh context, under another number.
Texts state(const Setup& setup) {
  Session first(setup), second(setup);
  first.feed({{0, setup.prompt(1940, kPromptTokens)}});
  first.generate({0}, kSteps / 2);
  std::vector<uint8_t> bytes(llama_state_seq_get_size(first.context(), 0));
  require(llama_state_seq_get_data(first.context(), bytes.data(), bytes.size(), 0) == bytes.size(),
          "llama.cpp saves less of a sequence than it announces");
  require(llama_state_seq_set_data(second.context(), bytes.data(), bytes.size(), 1) > 0,
          "llama.cpp does not load the state of a sequence");
  second.at(1) = first.at(0);
  first.generate({0});
  second.generate({1});
  require(first.texts() == second.texts(), "a sequence goes on differently after its state was loaded");
  return second.texts();
}

// One of four sequences generates while the other three are idle: first the last one, then the first one. Where steps
// are timed, they come behind the next capture of a CUDA graph, so that programs compiled meanwhile are in it.
Texts idle(const Setup& setup) {
  using Clock = std::chrono::steady_clock;
  Session session(setup, setup.times_steps() ? kLongUbatchTokens : kUbatchTokens);
  for (int i = 0; i < kSequences; ++i) session.feed({{i, setup.prompt(700 * i, setup.idle_tokens)}});
  for (const llama_seq_id id : {kSequences - 1, 0}) {
    session.generate({id}, setup.times_steps() ? kStepsToRecapture : kSteps);
    std::vector<double> ms;
    for (int step = 0; step < kSteps; ++step) {
      const auto began = Clock::now();
      session.generate({id}, 1);
      ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    }
    std::sort(ms.begin(), ms.end());
    std::fprintf(stderr, "idle: sequence %d: %.3f ms a step, the median of %d\n", id, ms[ms.size() / 2], kSteps);
  }
  return session.texts();
}

const std::map<std::string, Texts (*)(const Setup&)> kScenarios = {
    {"one", one},     {"odd", odd},   {"several", several}, {"copies", copies},
    {"shift", shift}, {"idle", idle}, {"state", state}};

void run(const std::string& scenario, Setup setup) {
  setup.is_unified = scenario.find("+unified") != std::string::npos;
  setup.has_full_windows = scenario.find("+full") != std::string::npos;
  const auto found = kScenarios.find(scenario.substr(0, scenario.find('+')));
  require(found != kScenarios.end(), "there is no scenario " + scenario);
  std::string line = scenario + ": ";
  try {
    for (const std::string& text : found->second(setup)) line += printable(text) + " | ";
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(line + error.what());
  }
  std::puts(line.c_str());
  std::fflush(stdout);
}

ggml_type type_of(const std::string& name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i)
    if (const char* const own = ggml_type_name(ggml_type(i)); own && name == own) return ggml_type(i);
  throw std::runtime_error("ggml has no type " + name);
}

void run_all(const std::vector<std::string>& arguments) {
  const std::map<std::string, llama_split_mode> splits = {
      {"none", LLAMA_SPLIT_MODE_NONE}, {"layer", LLAMA_SPLIT_MODE_LAYER}, {"row", LLAMA_SPLIT_MODE_ROW}};
  Setup setup;
  llama_model_params params = llama_model_default_params();
  std::vector<std::string> words;
  std::string file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (word == "--margins") {
      setup.has_margins = true;
    } else if (word == "--text") {
      file = value, ++i;
    } else if (word == "--idle") {
      setup.idle_tokens = std::stoi(value), ++i;
      require(setup.idle_tokens > 0 && setup.idle_tokens <= 1 << 20, "--idle is a number of tokens, at most 2^20");
    } else if (word == "--split") {
      require(splits.count(value) == 1, "--split is none, layer or row");
      params.split_mode = splits.at(value), ++i;
    } else {
      words.push_back(word);
    }
  }
  require(words.size() > 4, "usage: texts MODEL.gguf TYPE_K TYPE_V GPU_LAYERS SCENARIO... --text FILE");
  setup.type_k = type_of(words[1]);
  setup.type_v = type_of(words[2]);
  params.n_gpu_layers = std::stoi(words[3]);
  std::ifstream stream(file, std::ios::binary);
  require(bool(stream), "the text '" + file + "' cannot be read");
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(words[0].c_str(), params), llama_model_free);
  require(model != nullptr, words[0] + " cannot be loaded");
  std::fprintf(stderr, "system: %s\n", llama_print_system_info());
  setup.model = model.get();
  setup.text.resize(text.size());
  const int count = llama_tokenize(setup.vocabulary(), text.data(), int(text.size()), setup.text.data(),
                                   int(text.size()), false, false);
  require(count > 0, "the text has no tokens, or more of them than bytes");
  setup.text.resize(std::size_t(count));
  for (std::size_t i = 4; i < words.size(); ++i) run(words[i], setup);
}

}  // namespace

int main(int argc, char** argv) {
  llama_log_set(
      [](ggml_log_level level, const char* message, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(message, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  try {
    run_all({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "texts: %s\n", error.what());
    return 1;
  }
  return 0;
}
