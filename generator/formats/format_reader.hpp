// How a file of specs/formats is read: one method a table of the file. Internal to format_*.cpp; what is read is stated
// in specs/README.md.
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
  // What the numbers of a codebook are multiples of.
  enum class Unit {
    listed,  // the scale, or coordinates of a unit vector: used as listed
    normal,  // N(0,1): divided by the square root of the values that share a norm
    amax,    // a span whose largest magnitude is the scale: divided by the largest magnitude here
    steps,   // whole or half steps, with as many to sigma as the file says; the stored scale is found for them
             // afterwards
  };

  void names(schema::Table& top, const std::string& file);         // format_file.cpp
  int size(schema::Table& table, const char* key, int otherwise);  // ... a number or "head_dim"
  void codes(schema::Table& codes, Section& section);
  void scale(schema::Table& scale);
  void check_scale(schema::Table& scale);
  Result<void> rotation(schema::Table& rotation);
  void codebook(schema::Table& book, Section& section);  // format_codebook.cpp
  void listed_codebook(schema::Table& book, Section& section, Unit unit);
  void order_codes(schema::Table& book, Section& section);
  void steps_codebook(schema::Table& book, Section& section);
  Result<void> outliers(schema::Table& outliers);  // format_sections.cpp
  void mask_words(schema::Table& outliers, const schema::Node& mask, std::vector<bool>& is_outlier);
  Result<void> residual(schema::Table& residual);
  void fields(schema::Table& top);  // format_fields.cpp
  void number_field(schema::Table& table, const std::string& name, Field& field);
  void check_fields(schema::Table& top);

  const RotationLookup& rotations_;
  int head_dim_;
  Format f_;
};

}  // namespace kvjit
