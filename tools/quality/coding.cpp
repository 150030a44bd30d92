// Says how formats code values: see coding.hpp.
// SPDX-License-Identifier: MIT
#include "tools/quality/coding.hpp"

namespace kvjit {

Coding coding_of(const Format& format) {
  if (format.has_residual()) return Coding::residual;
  if (format.sections.size() > 1) return Coding::outliers;
  switch (format.rotation.kind) {
    case RotationKind::wht:
      return Coding::wht;
    case RotationKind::dense:
      return Coding::dense;
    case RotationKind::blocks:
      return Coding::few_channels;
    case RotationKind::none:
      break;
  }
  switch (format.codes().kind) {
    case CodeKind::plain:
      return Coding::floats;
    case CodeKind::uniform:
      return Coding::integers;
    case CodeKind::table:
    case CodeKind::vector:
      return Coding::codebook;
  }
  return Coding::floats;
}

Coding coding_of(const KvFormats& formats) {
  if (!formats.k.format || !formats.v.format) return Coding::mixed;
  const Coding k = coding_of(*formats.k.format);
  return k == coding_of(*formats.v.format) ? k : Coding::mixed;
}

const std::vector<std::string>& coding_names() {
  static const std::vector<std::string> names = {"floats",
                                                 "integers",
                                                 "codebook",
                                                 "Walsh-Hadamard rotation",
                                                 "dense rotation",
                                                 "rotations of 2 to 4 channels",
                                                 "more bits for outliers",
                                                 "signs of the residual",
                                                 "K and V differ in this"};
  return names;
}

}  // namespace kvjit
