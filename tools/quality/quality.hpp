// The errors of storing keys and values in K/V formats: those of K, V, logits and outputs, in double precision over the
// reference codec. No kernel runs.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/resolve/problem.hpp"
#include "tools/quality/samples.hpp"

namespace kvjit {

// The format that stores K or V, resolved for the head_dim, with the channel scales and the mask of a calibration if
// there is one.
struct StoredSide {
  std::string name;
  Result<Format> format;  // an error if it cannot store heads of this size
};

struct KvFormats {
  StoredSide k;
  StoredSide v;

  std::string name() const { return k.name == v.name ? k.name : k.name + " / " + v.name; }
};

// The distinct K/V formats of the specs, then each format of `names` for both K and V ("all": every format). A format
// that does not fit the head_dim stays in the list with its error; an unknown name fails.
Result<std::vector<KvFormats>> kv_formats_of(const std::vector<Spec>& specs, const std::vector<std::string>& names,
                                             int head_dim, const Registry& registry);

// The measures of one combination of K/V formats on one sample. x is a number of K or V, l = q.k / sqrt(d) a logit, out
// the output of attention; x^, l^ and out^ are the same over the decoded cache.
struct Quality {
  double k_bits = 0;        // stored bits a value
  double v_bits = 0;        // stored bits a value
  float k_scale = 0;        // the scale, if the format has one a tensor; else 0
  float v_scale = 0;        // the scale, if the format has one a tensor; else 0
  double k_mse = 0;         // sum (x^ - x)^2 / sum x^2
  double v_mse = 0;         // sum (x^ - x)^2 / sum x^2
  double logit_error = 0;   // sqrt(sum (l^ - l)^2 / sum l^2), over the logits of tokens that queries see
  double logit_max = 0;     // max |l^ - l|
  double cosine = 0;        // mean over query rows of cos(out^, out)
  double output_error = 0;  // |out^ - out| / |out|
  double bits() const { return (k_bits + v_bits) / 2; }
};

// Fails with the side's error if its format cannot store such heads, and with Code::unsupported if numbers overflow; a
// table then lists the formats with the reason.
Result<Quality> measure_quality(const Sample& sample, const KvFormats& formats);

// One side after encoding and decoding.
struct Stored {
  std::vector<double> decoded;  // [heads][rows][dim]
  double bits = 0;              // stored bits a value
  float tensor_scale = 0;       // 0: the format has none
};
Result<Stored> stored_and_back(const Format& format, const KvqFile& x);

// The scale of a format with one scale for the whole tensor. It maps the largest number of the tensor to the largest
// value of a code (448 for E4M3, 57344 for E5M2). 1 if all numbers are 0.
float tensor_scale_for(const Format& format, const KvqFile& x);

}  // namespace kvjit
