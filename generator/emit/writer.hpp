// What the emit_*.cpp files share: a growing text, the fragments already in it, and how numbers are spelled. Internal
// to generator/. Everything printed is a number, an enum's name or a generated identifier; no text of a spec reaches
// the source (titles stay out of it).
// SPDX-License-Identifier: MIT
#pragma once
#include <fmt/format.h>

#include <set>
#include <string>

#include "generator/catalogue/registry.hpp"
#include "generator/formats/format.hpp"
#include "generator/source.hpp"
#include "generator/spec/features.hpp"

namespace kvjit::emit {

std::string real(double value);  // shortest text that reads back as the same float
inline const char* flag(bool value) { return value ? "true" : "false"; }

template <class Values, class Print>
std::string joined(const Values& values, const Print& print) {
  std::string text;
  std::size_t line = 0;
  for (const auto& value : values) {
    const std::string item = print(value) + ", ";
    if ((line += item.size()) > 100) text += "\n    ", line = item.size();
    text += item;
  }
  if (text.size() >= 2) text.resize(text.size() - 2);
  return text;
}

// The fragments in the order of their includes, each once, without the lines that only make sense in separate files.
void append_fragment(const std::string& name, const Registry& registry, std::set<std::string>& done, std::string& out);

struct Writer {
  const Registry& registry;
  std::string text;
  std::set<std::string> fragments;
  bool is_checked = false;  // the kernel runs only if its call has passed the checks

  void fragment(const std::string& name) { append_fragment(name, registry, fragments, text); }
  void check_first(bool is_wanted) {
    if ((is_checked = is_wanted)) fragment("args/checks.cuh");
  }

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
};

Writer begin(const Registry& registry, const std::string& name, const std::string& what);

struct Entry {
  std::string family, args;
  int threads, shared_bytes, args_bytes;
  bool is_featured = false;
};

Source finish(Writer& w, const std::string& name, const std::string& arch, const Entry& entry);

// Pages of a side of the cache, for templates/args/page_table.cuh: how many tokens, and where a kernel's arguments have
// the table that leads to them. Nothing is written for caches without.
struct Paging {
  int tokens = 0;
  int table_at = 0;  // bytes, from the arguments' CacheSide on
};
Paging attention_paging(int page_tokens, bool is_key, bool appends);
Paging codec_paging(int page_tokens);
Paging tokens_paging(int page_tokens);
void write_paging(Writer& w, const Paging& paging);

// A stored format as formats/stored_row.cuh reads it: struct `type`; the tables behind it get names that derive from
// it.
void write_format(Writer& w, const Format& format, int head_dim, const std::string& type, bool is_planar,
                  const Paging& paging = {});
// How rows of `format` (a struct of write_format) are encoded: struct `type`, for formats/encode.cuh. After
// write_domain.
void write_encoder(Writer& w, const Format& f, const std::string& format, const std::string& type, bool is_planar,
                   const std::string& prefix = "Plan");
// What formats/write_row.cuh asks for beside the domain's members: the encoder of a format's struct, and what pads a
// block; and the shared memory that a warp needs.
void write_writer_members(Writer& w, const Format& f, const std::string& format, const std::string& encoder,
                          bool is_planar);
int writer_bytes(const Format& f, int head_dim);
// What formats/rotated_domain.cuh asks for: PlanRotation, PlanProjection and factors of channels; then the members of a
// plan over them. prefix: of the names, where a kernel has two.
void write_domain(Writer& w, const Format& format, bool goes_back, const std::string& prefix = "Plan");
std::string domain_members(const Format& format, int head_dim, const std::string& prefix = "Plan");
// The same as a struct of its own: KeyDomain or ValueDomain.
void write_domain_struct(Writer& w, const Format& format, int head_dim, bool goes_back, const std::string& prefix);
void domain_fragments(Writer& w, const Format& format);
// `using <type> = ...` and the data behind it, whose names derive from `type`; and the fragment that it needs.
void write_rotation(Writer& w, const Rotation& rotation, const std::string& type = "PlanRotation",
                    bool goes_back = false);
const char* rotation_fragment(const Rotation& rotation);

// How elements of a type are read and written; the feature of a call and its fragment.
std::string load_of(Element type, const char* name);
std::string store_of(Element type);
std::string feature_of(const FeatureSet& features, bool causal, int query_length, bool has_sparse_values = false);
void feature_fragments(Writer& w, const FeatureSet& features, bool causal, int query_length);
// What the types of features refer to, ahead of the plan.
void write_features(Writer& w, const FeatureSet& features);

}  // namespace kvjit::emit
