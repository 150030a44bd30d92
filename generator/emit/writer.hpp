// Writer: the growing text of one kernel, with the functions that the emitters of all families share. The header is
// internal to generator/.
//
// A kernel's text is made in this order: begin writes the banner; Writer::fragment inlines the fragments of templates/,
// each once; the emitter writes tables and the struct Plan by the functions below; finish writes the entry. Everything
// that is written is a number, the name of an enumerator or a generated identifier. No text of a spec gets into a
// kernel, not even its title. The expression of a hook is printed from its parse (spec/hook_grammar.hpp).
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

std::string real(double value);  // the shortest text that reads back as the same float
inline const char* flag(bool value) { return value ? "true" : "false"; }

// The items of a list as text, separated by commas, in lines of about 100 characters.
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

// Appends a fragment behind the fragments that it includes, unless `done` has it. Lines that make sense only in
// separate files are left out.
void append_fragment(const std::string& name, const Registry& registry, std::set<std::string>& done, std::string& out);

// Where a kernel waits for the previous one itself (PDL): nowhere, at its start, or where its arguments say
// (BoundedCodecArgs::waits_at_end).
enum class Overlap { none, at_start, by_args };

struct Writer {
  const Registry& registry;
  std::string text;                 // the kernel so far
  std::set<std::string> fragments;  // the names of those that the text has
  bool is_checked = false;          // the kernel runs only if its call has passed the checks
  Overlap overlap = Overlap::none;

  void fragment(const std::string& name) { append_fragment(name, registry, fragments, text); }
  void check_first(bool is_wanted) {
    if ((is_checked = is_wanted)) fragment("args/checks.cuh");
  }

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
};

// A writer whose text begins with the kernel's name and a line that says what it does.
Writer begin(const Registry& registry, const std::string& name, const std::string& what);

// The entry of a kernel.
struct Entry {
  std::string family,         // the name of the function in templates/kernels; the entry is kv_{family}
      args;                   // the type of its arguments in templates/args
  int threads,                // of a block
      shared_bytes,           // of a block
      args_bytes;             // the size of the arguments, with those of features; the kernel asserts it
  bool is_featured = false;   // the arguments are Featured<args>, which adds FeatureArgs
  bool is_varlen = false;     // the arguments are Varlen<args>, which adds VarlenArgs; args_bytes counts them, too
  std::string plan = "Plan";  // the plan's type
  std::string before = "";    // a statement ahead of the family's function
};

// The plan's type in a kernel of attention, for which `fragment` says how heads get the scales of their K and V.
std::string attention_plan(Writer& w, const Format& k, const Format& v, const char* fragment);

// Writes the entry, and returns the finished kernel.
Source finish(Writer& w, const std::string& name, const std::string& arch, const Entry& entry);

// The pages of a side of the cache (templates/args/page_table.cuh). For caches without pages nothing is written.
struct Paging {
  int tokens = 0;    // tokens of a page; 0: there are no pages
  int table_at = 0;  // bytes from the CacheSide in a kernel's arguments to its page table
};
Paging attention_paging(int page_tokens, bool is_key, bool appends);
Paging codec_paging(int page_tokens);
Paging tokens_paging(int page_tokens);
void write_paging(Writer& w, const Paging& paging);

// Writes struct `type`, a stored format as formats/stored_row.cuh reads it. Its tables have names that derive from
// `type`.
void write_format(Writer& w, const Format& format, int head_dim, const std::string& type, bool is_planar,
                  const Paging& paging = {});
// Writes struct `type`, an encoder as formats/encode.cuh asks for it. `format` is a struct of write_format.
// write_domain must have come before.
void write_encoder(Writer& w, const Format& f, const std::string& format, const std::string& type, bool is_planar,
                   const std::string& prefix = "Plan");
// Writes the members of a Writer (formats/write_row.cuh) beside those of its domain: the encoder, and the function that
// pads blocks. writer_bytes: the shared memory that a warp needs.
void write_writer_members(Writer& w, const Format& f, const std::string& format, const std::string& encoder,
                          bool is_planar);
int writer_bytes(const Format& f, int head_dim);
// Writes what formats/rotated_domain.cuh asks for: the types PlanRotation and PlanProjection and the factors of
// channels. domain_members gives the members of a plan over them. A kernel with two domains gives their names different
// prefixes.
void write_domain(Writer& w, const Format& format, bool goes_back, const std::string& prefix = "Plan");
std::string domain_members(const Format& format, int head_dim, const std::string& prefix = "Plan");
// Writes a domain as a struct of its own: KeyDomain or ValueDomain.
void write_domain_struct(Writer& w, const Format& format, int head_dim, bool goes_back, const std::string& prefix);
void domain_fragments(Writer& w, const Format& format);
// Adds the fragments that write_format needs, and if rows of the format are written, those of write_encoder.
void format_fragments(Writer& w, const Format& format, bool is_written);
// Writes the alias `type` of a rotation, and its data, whose names derive from `type`. goes_back: the kernel rotates
// back, so a dense table is stored by rows. rotation_fragment: the fragment that the alias needs.
void write_rotation(Writer& w, const Rotation& rotation, const std::string& type = "PlanRotation",
                    bool goes_back = false);
const char* rotation_fragment(const Rotation& rotation);

// load_of and store_of: functions that read and write elements of a type. load_bits_of: a function that reads the bits
// of an element of Q, and one that takes them to its value. feature_of: the type of a plan's features;
// feature_fragments: the fragments that it needs.
std::string load_of(Element type, const char* name);
std::string load_bits_of(Element type);
std::string store_of(Element type);
std::string feature_of(const FeatureSet& features, bool causal, int query_length, bool has_sparse_values = false);
void feature_fragments(Writer& w, const FeatureSet& features, bool causal, int query_length);
// Writes the members that fragments for run-time query lengths ask for (templates/kernels/decode/query_ranges.cuh).
// q_type, out_type: of the rows that the kernel reads and writes.
void write_varlen(Writer& w, int query_length, Element q_type, Element out_type);
// Writes the structs that types of features refer to. They come ahead of the plan.
void write_features(Writer& w, const FeatureSet& features);

}  // namespace kvjit::emit
