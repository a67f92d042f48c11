// See solver.h.
#include "algorithms/synth/taccl/solver.h"

#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "src/base/config.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr const char* kLibrary = "libweft-solver-cbc.so";

// Places beside the file that holds this code, nearest first.
std::vector<std::string> places() {
  std::vector<std::string> result;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&places), &info) != 0 && info.dli_fname != nullptr) {
    std::error_code error;
    std::filesystem::path self = std::filesystem::canonical(info.dli_fname, error);
    if (error) self = std::filesystem::canonical("/proc/self/exe", error);
    if (!error)
      for (const auto& folder : {self.parent_path(), self.parent_path().parent_path() / "lib"})
        result.push_back((folder / kLibrary).string());
  }
  return result;
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

}  // namespace

std::shared_ptr<const Solver> Solver::find(std::string& why_not) {
  why_not.clear();
  const std::string named = Config::from_environment().solver_plugin;
  if (named == "none") {
    why_not = "no solver (WEFT_SOLVER_PLUGIN=none)";
    return nullptr;
  }
  try {
    if (!named.empty()) return load(named);
    for (const std::string& place : places())
      if (std::filesystem::exists(place)) return load(place);
    return load(kLibrary);
  } catch (const Error& error) {
    why_not = error.what();
    return nullptr;
  }
}

std::shared_ptr<const Solver> Solver::load(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    fail(ncclSystemError, "no solver: cannot load {}: {}", path,
         one_line(reason != nullptr ? reason : "no reason given"));
  }
  const auto* plugin = static_cast<const WeftSolver*>(dlsym(handle, kWeftSolverSymbol));
  std::string wrong;
  if (plugin == nullptr)
    wrong = fmt::format("it has no symbol {}", kWeftSolverSymbol);
  else if (plugin->version != kWeftSolverVersion)
    wrong = fmt::format("it has version {}, wanted is {}", plugin->version, kWeftSolverVersion);
  else if (plugin->solve == nullptr || plugin->name == nullptr)
    wrong = "it has no name or no solve()";
  if (!wrong.empty()) {
    dlclose(handle);
    fail(ncclInvalidUsage, "no solver: {} is no solver plugin: {}", path, wrong);
  }
  return std::shared_ptr<const Solver>(new Solver(handle, plugin));
}

Solver::~Solver() { dlclose(handle_); }

Solver::Solution Solver::improve(const LinearModel& model, const std::vector<double>& start,
                                 double seconds) const {
  if (const std::string wrong = model.broken(start); !wrong.empty())
    fail(ncclInternalError, "the start breaks its model: {}", wrong);
  Solution result{start, model.objective(start), false, false, "", 0};
  const auto began = std::chrono::steady_clock::now();
  std::vector<double> values(start.size());
  const WeftSolverModel plain{model.columns(),        model.rows(),           model.cost.data(),
                              model.lower.data(),     model.upper.data(),     model.integer.data(),
                              model.row_begin.data(), model.column.data(),    model.factor.data(),
                              model.row_lower.data(), model.row_upper.data(), start.data()};
  WeftSolverAnswer answer{values.data(), 0, 0, {}};
  const int32_t failed = plugin_->solve(&plain, seconds, &answer);
  answer.message[sizeof answer.message - 1] = '\0';
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  result.note = one_line(answer.message);
  if (failed != 0) {
    result.note = fmt::format("solver {} failed ({})", name(),
                              result.note.empty() ? fmt::format("code {}", failed) : result.note);
    return result;
  }
  if (answer.found == 0) return result;
  for (size_t i = 0; i < values.size(); i++)
    if (model.integer[i] != 0) values[i] = std::round(values[i]);
  if (const std::string wrong = model.broken(values, 1e-5); !wrong.empty()) {
    result.note = fmt::format("solver {} gave no solution of its model: {}", name(), wrong);
    return result;
  }
  result.optimal = answer.optimal != 0;
  const double objective = model.objective(values);
  if (objective >= result.objective - 1e-9 * std::abs(result.objective)) return result;
  result.values = std::move(values);
  result.objective = objective;
  result.improved = true;
  return result;
}

}  // namespace weft
