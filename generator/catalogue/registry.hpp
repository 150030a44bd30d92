// Registry: all formats, rotations, archs, calibrations, hooks, policies and tuning rows by name, and the text of all
// templates. It is loaded from texts: those embedded in the binary, and those of folders that the caller has read. The
// generator itself opens no file.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/catalogue/arch.hpp"
#include "generator/catalogue/fragment.hpp"
#include "generator/catalogue/tuning.hpp"
#include "generator/formats/calibration.hpp"
#include "generator/formats/format.hpp"
#include "generator/formats/rotation.hpp"
#include "generator/spec/hook.hpp"
#include "generator/spec/layers.hpp"

namespace kvjit {

// From full name ("specs/formats/q8_0.toml", "templates/device/simt.cuh") to text.
using FileSet = std::map<std::string, std::string>;
// From the full name of a caller's file to its name in messages. It also has files that lie beside the folders that are
// read ("specs/mine.toml"), so that the error for an unknown name can point at them.
using FileNames = std::map<std::string, std::string>;

// The files that are compiled into the binary: templates/** and specs/**.
const FileSet& embedded_files();

class Registry : public RotationLookup, public ArchLookup {
 public:
  // Reads all files. A caller replaces an embedded file by setting its name in the set. Two formats with the same name
  // or alias are an error that names both files.
  static Result<Registry> load(const FileSet& files, const FileNames& shown_as = {});

  // An unknown name is an error with suggestions and the list of names. A format that depends on head_dim is returned
  // for 128.
  Result<const Format*> format(const std::string& name_or_alias, const Where& where) const;
  // The format for heads of head_dim values, which differs if its block or rotation is the whole head. Fails if
  // head_dim does not fit (check_head_dim).
  Result<Format> format_for(const std::string& name_or_alias, int head_dim, const Where& where) const;
  // All formats that are published under this name somewhere; the one with this name here comes first.
  std::vector<std::string> variants(const std::string& name_or_alias) const;
  Result<Rotation> rotation(const std::string& name, int size, const Where& where) const override;
  const Arch* arch(const std::string& name) const override;  // nullptr if unknown
  Result<const Arch*> require_arch(const std::string& name, const Where& where) const;
  Result<const Calibration*> calibration(const std::string& name, const Where& where) const;
  Result<const Hook*> hook(const std::string& name, const Where& where) const;
  Result<const Policy*> policy(const std::string& name, const Where& where) const;
  const std::vector<TuningRow>& tuning(const std::string& arch) const;  // measured shapes, in the order of the file
  const Fragment* fragment(const std::string& name) const;  // "device/simt.cuh"; nullptr if there is none

  const std::map<std::string, Format>& formats() const { return formats_; }
  const std::map<std::string, RotationSpec>& rotations() const { return rotations_; }
  const std::map<std::string, Arch>& archs() const { return archs_; }
  const std::map<std::string, Calibration>& calibrations() const { return calibrations_; }
  const std::map<std::string, Policy>& policies() const { return policies_; }
  const std::map<std::string, std::string>& aliases() const { return aliases_; }  // alias -> format name

 private:
  std::map<std::string, Format> formats_;
  std::map<std::string, std::pair<std::string, std::string>> sources_;  // formats that depend on head_dim: file, text
  std::map<std::string, RotationSpec> rotations_;
  std::map<std::string, Arch> archs_;
  std::map<std::string, Calibration> calibrations_;
  std::map<std::string, Hook> hooks_;
  std::map<std::string, Policy> policies_;
  std::map<std::string, std::vector<TuningRow>> tuning_;  // by arch
  std::map<std::string, std::string> aliases_;
  std::map<std::string, Fragment> fragments_;
  std::map<std::string, std::string> unread_;  // files beside the folders: "mine.toml" -> name in messages

  tl::unexpected<Error> unknown(const std::string& what, const std::string& name, const Where& where,
                                const std::vector<std::string>& names) const;
};

}  // namespace kvjit
