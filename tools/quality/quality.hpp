// Quality: what storing keys and values in a format costs, in double precision over the reference codec. No kernel
// runs.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/resolve/problem.hpp"
#include "tools/quality/samples.hpp"

namespace kvjit {

// How one side is stored: a format made for the head_dim (with the channels and the mask of a calibration, if any), or
// the reason why it cannot store such heads.
struct StoredSide {
  std::string name;
  Result<Format> format;
};

struct Pair {
  StoredSide k, v;

  std::string name() const { return k.name == v.name ? k.name : k.name + " / " + v.name; }
};

// The distinct pairs: those of the specs, then each of `names` as K and V ("all": every format). A format that does not
// fit the head_dim stays, with its reason; a name that is not known fails.
Result<std::vector<Pair>> pairs_of(const std::vector<Spec>& specs, const std::vector<std::string>& names, int head_dim,
                                   const Registry& registry);

// l = q.k / sqrt(d): logits; out: the output of attention; ^: over the decoded cache.
struct Quality {
  double k_bits = 0, v_bits = 0;   // stored bits a value
  float k_scale = 0, v_scale = 0;  // of formats with one scale a tensor: the scale; 0: others
  double k_mse = 0, v_mse = 0;     // sum (x^ - x)^2 / sum x^2
  double logit_error = 0;          // sqrt(sum (l^ - l)^2 / sum l^2), over the logits that queries see
  double logit_max = 0;            // max |l^ - l|
  double cosine = 0;               // mean over queries of cos(out^, out)
  double output_error = 0;         // |out^ - out| / |out|
  double bits() const { return (k_bits + v_bits) / 2; }
};

// The reason if a side cannot store such heads, unsupported when its numbers overflow: a row to be listed with the
// reason.
Result<Quality> measure_quality(const Sample& sample, const Pair& pair);

// One side alone: rows [heads][rows][dim] after encode and decode.
struct Stored {
  std::vector<double> decoded;
  double bits = 0;         // a value of x
  float tensor_scale = 0;  // 0: the format has none
};
Result<Stored> stored_and_back(const Format& format, const Heads& x);

// Of a format with one scale for the whole tensor: the scale by which the largest number becomes the largest that its
// codes can mean (448 of E4M3, 57344 of E5M2). 1 if all are 0.
float tensor_scale_for(const Format& format, const Heads& x);

}  // namespace kvjit
