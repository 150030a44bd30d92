// Registry: every format, rotation and arch by name, and the text of every template. Loaded from files it is given
// (embedded in the binary, plus folders the caller adds); the generator itself opens no file.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/catalogue/arch.hpp"
#include "generator/catalogue/tuning.hpp"
#include "generator/formats/calibration.hpp"
#include "generator/formats/format.hpp"
#include "generator/formats/rotation.hpp"
#include "generator/spec/hook.hpp"
#include "generator/spec/layers.hpp"

namespace kvjit {

// Full name ("specs/formats/q8_0.toml", "templates/device/simt.cuh") -> text.
using FileSet = std::map<std::string, std::string>;
// Of files that a caller brought: full name in the set -> what messages call it.
using FileNames = std::map<std::string, std::string>;

// The files compiled into the binary: templates/** and specs/**.
const FileSet& embedded_files();

class Registry : public RotationLookup, public ArchLookup {
 public:
  // A later file of the same name replaces an earlier one only across sets (caller's folder over embedded); two owners
  // of one name or alias inside the result are an error that names both files.
  static Result<Registry> load(const FileSet& files, const FileNames& shown_as = {});

  // Unknown: did-you-mean and the list. Formats made for each head_dim are those of 128 here.
  Result<const Format*> format(const std::string& name_or_alias, const Where& where) const;
  // The format as heads of head_dim values are stored: one whose block or rotation is the whole head is made for that
  // size. Fails when head_dim does not fit (check_head_dim).
  Result<Format> format_for(const std::string& name_or_alias, int head_dim, const Where& where) const;
  // Every format that is published under this name somewhere, the one that it means here first.
  std::vector<std::string> variants(const std::string& name_or_alias) const;
  Result<Rotation> rotation(const std::string& name, int size, const Where& where) const override;
  const Arch* arch(const std::string& name) const override;  // nullptr if unknown
  Result<const Arch*> require_arch(const std::string& name, const Where& where) const;
  Result<const Calibration*> calibration(const std::string& name, const Where& where) const;
  Result<const Hook*> hook(const std::string& name, const Where& where) const;
  Result<const Policy*> policy(const std::string& name, const Where& where) const;
  const std::vector<TuningRow>& tuning(const std::string& arch) const;  // measured shapes, in the order of the file
  const std::string* fragment(const std::string& name) const;  // "device/simt.cuh" -> text, nullptr if there is none

  const std::map<std::string, Format>& formats() const { return formats_; }
  const std::map<std::string, RotationSpec>& rotations() const { return rotations_; }
  const std::map<std::string, Arch>& archs() const { return archs_; }
  const std::map<std::string, Calibration>& calibrations() const { return calibrations_; }
  const std::map<std::string, Policy>& policies() const { return policies_; }
  const std::map<std::string, std::string>& aliases() const { return aliases_; }  // alias -> format name

 private:
  std::map<std::string, Format> formats_;
  std::map<std::string, std::pair<std::string, std::string>> sources_;  // of formats made for each head_dim: file, text
  std::map<std::string, RotationSpec> rotations_;
  std::map<std::string, Arch> archs_;
  std::map<std::string, Calibration> calibrations_;
  std::map<std::string, Hook> hooks_;
  std::map<std::string, Policy> policies_;
  std::map<std::string, std::vector<TuningRow>> tuning_;  // by arch
  std::map<std::string, std::string> aliases_;
  std::map<std::string, std::string> fragments_;
};

}  // namespace kvjit
