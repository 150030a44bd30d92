// FormatReader reads a file of specs/formats, with one method for each table of the file. It is internal to
// format_*.cpp. specs/docs/formats.md ("Keys of a format") is the reference of the keys.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/base/schema.hpp"
#include "generator/formats/format.hpp"

namespace kvjit {

class FormatReader {
 public:
  FormatReader(const RotationLookup& rotations, int head_dim) : rotations_(rotations), head_dim_(head_dim) {}
  Result<Format> read(std::string_view toml_text, const std::string& file);

 private:
  // The unit of a codebook's numbers: how the file's `unit` turns them into entries.
  enum class Unit {
    listed,  // multiples of the scale, or coordinates of a unit vector: used as listed
    normal,  // numbers of N(0,1): divided by the square root of how many values share a norm
    amax,    // the largest magnitude of the table is the scale: divided by that magnitude
    steps,   // whole or half steps, of which steps_per_sigma are a standard deviation; the stored scale is found
             // afterwards
  };

  // In format_file.cpp:
  void names(schema::Table& top, const std::string& file);
  int size(schema::Table& table, const char* key, int otherwise);  // a number or "head_dim"
  void codes(schema::Table& codes, Section& section);
  void trellis(schema::Table& codes, Section& section);
  void check_trellis(schema::Table& top);
  void check_vectors(schema::Table& top);
  void scale(schema::Table& scale);
  void check_scale(schema::Table& scale);
  void check_zero_point(schema::Table& scale);
  void check_amax_keys(schema::Table& scale);
  Result<void> rotation(schema::Table& rotation);
  Result<void> coding(schema::Table& top);
  // In format_codebook.cpp:
  void codebook(schema::Table& book, Section& section);
  void listed_codebook(schema::Table& book, Section& section, Unit unit);
  void order_ties(schema::Table& book, Section& section);
  void order_codes(schema::Table& book, Section& section);
  void steps_codebook(schema::Table& book, Section& section);
  void trellis_codebook(schema::Table& book, Section& section);
  void vector_codebook(schema::Table& book, Section& section);
  // In format_sections.cpp:
  Result<void> outliers(schema::Table& outliers);
  void mask_words(schema::Table& outliers, const schema::Node& mask, std::vector<bool>& is_outlier);
  Result<void> residual(schema::Table& residual);
  // In format_segments.cpp:
  Result<void> segments(schema::Table& top, const schema::Node& list);
  Result<Segment> segment(const schema::Node& node, int first);
  bool segment_channels(schema::Table& table, std::vector<int>& channels);
  void segment_fields(schema::Table& top);
  void check_segment_places(schema::Table& top);
  // In format_fields.cpp:
  void fields(schema::Table& top);
  void split(schema::Table& table, Field& field, int count);
  void number_field(schema::Table& table, const std::string& name, Field& field);
  void check_fields(schema::Table& top);

  const RotationLookup& rotations_;
  int head_dim_;  // what the word "head_dim" stands for
  Format f_;      // the format so far
};

}  // namespace kvjit
