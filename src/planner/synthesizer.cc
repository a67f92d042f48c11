// See synthesizer.h.
#include "src/planner/synthesizer.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <map>
#include <mutex>

#include "algorithms/synth/synthesis_abi.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/topology/formats/machine_json.h"

namespace weft {
namespace {

// Beside the file that holds this code, or in `lib` beside its folder (for programs in `bin`).
std::vector<std::string> library_places(const std::string& named) {
  if (!named.empty()) return {named};
  std::vector<std::string> list;
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&can_synthesize), &here) != 0 &&
      here.dli_fname != nullptr) {
    std::error_code error;
    std::filesystem::path self = std::filesystem::canonical(here.dli_fname, error);
    if (error) self = std::filesystem::canonical("/proc/self/exe", error);
    if (!error)
      for (const auto& folder : {self.parent_path(), self.parent_path().parent_path() / "lib"})
        if (const auto path = folder / kSynthesisLibrary; std::filesystem::exists(path, error))
          list.push_back(path.string());
  }
  list.emplace_back(kSynthesisLibrary);
  return list;
}

SynthesizeFunction load_library(const std::string& named) {
  std::string why;
  for (const std::string& place : library_places(named)) {
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed
    if (library == nullptr) {
      if (const char* text = dlerror(); why.empty() && text != nullptr) why = text;
      continue;
    }
    if (void* symbol = dlsym(library, kSynthesisSymbol); symbol != nullptr)
      return reinterpret_cast<SynthesizeFunction>(symbol);
    why = fmt::format("{} has no {}", place, kSynthesisSymbol);
  }
  WEFT_INFO(kInit, "no schedules are synthesized: {}", why);
  return nullptr;
}

SynthesizeFunction library_for(const Config& config) {
  if (config.synthesis == "none") return nullptr;
  static std::mutex mutex;
  static auto& loaded = *std::make_unique<std::map<std::string, SynthesizeFunction>>().release();
  std::lock_guard lock(mutex);
  const auto [it, fresh] = loaded.try_emplace(config.synthesis, nullptr);
  if (fresh) it->second = load_library(config.synthesis);
  return it->second;
}

}  // namespace

bool can_synthesize(const Config& config) { return library_for(config) != nullptr; }

std::optional<SynthesizedText> synthesize_apart(const Config& config, const Machine& machine,
                                                CollectiveKind kind, double bytes,
                                                const std::optional<LaneCosts>& costs,
                                                double seconds) {
  const SynthesizeFunction synthesize = library_for(config);
  if (synthesize == nullptr) return std::nullopt;
  SynthesizedText made;
  std::array<char, 1024> why{};
  const auto keep = [](void* context, const char* data, size_t size) {
    static_cast<std::string*>(context)->assign(data, size);
  };
  const int answer =
      synthesize(machine_to_json(machine).c_str(), std::string(name(kind)).c_str(), bytes,
                 costs ? &*costs : nullptr, seconds, keep, &made.text, why.data(), why.size());
  made.cut_short = answer == kSynthesisCutShort;
  if (answer == kSynthesized || made.cut_short) return made;
  WEFT_INFO(kInit, "no {} of {} bytes is synthesized: {}", name(kind), bytes, why.data());
  return std::nullopt;
}

}  // namespace weft
