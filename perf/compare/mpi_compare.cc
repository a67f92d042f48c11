// mpi_compare compares the library with MPI's own collectives, in one program and one run.
#include <getopt.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "perf/common/errors.h"
#include "perf/common/json_writer.h"
#include "perf/common/sizes.h"
#include "perf/compare/summary.h"
#include "weft.h"

namespace weft::perf {
namespace {

struct CompareOptions {
  size_t max_bytes = 64u << 20;
  int factor = 0;  // 0: the built-in list of sizes
  int repetitions = 15;
  std::string json_file;
  std::string only;        // collectives, separated by ','; empty: all
  bool own_hosts = false;  // every rank is its own host and uses the network
  bool help = false;
};

constexpr const char* kUsage =
    "usage: mpirun -n N mpi_compare [--max-size BYTES] [--factor F] [--reps R] [--json FILE] "
    "[--quick] [--only LIST] [--own-hosts]\n"
    "  --max-size  largest array (K, M, G), 64M unless told\n"
    "  --factor    sizes 8 B, 8*F, 8*F*F ... instead of the built-in list\n"
    "  --reps      how often the contenders alternate per row, 15 unless told\n"
    "  --quick     5 repetitions, up to 4 MiB\n"
    "  --only      collectives, ',' between them: all_reduce,all_gather\n"
    "  --own-hosts every rank counts as its own host, so that the library uses the network;\n"
    "              mpirun --mca btl tcp,self makes MPI do the same\n";

int positive(const char* flag, const char* text, int least) {
  const int value = std::atoi(text);
  if (value < least)
    throw UsageError(std::string(flag) + " takes " + std::to_string(least) + " or more");
  return value;
}

CompareOptions parse(int argc, char** argv) {
  static constexpr option kFlags[] = {{"max-size", required_argument, nullptr, 'm'},
                                      {"factor", required_argument, nullptr, 'f'},
                                      {"reps", required_argument, nullptr, 'r'},
                                      {"json", required_argument, nullptr, 'j'},
                                      {"quick", no_argument, nullptr, 'q'},
                                      {"only", required_argument, nullptr, 'o'},
                                      {"own-hosts", no_argument, nullptr, 'w'},
                                      {"help", no_argument, nullptr, 'h'},
                                      {nullptr, 0, nullptr, 0}};
  CompareOptions options;
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, ":h", kFlags, nullptr)) != -1;) {
    if (code == 'm') {
      const auto bytes = parse_size(optarg);
      if (!bytes || *bytes < 8 || *bytes > (size_t{4} << 30)) {
        throw UsageError("--max-size takes a size from 8 to 4G");
      }
      options.max_bytes = *bytes;
    } else if (code == 'f') {
      options.factor = positive("--factor", optarg, 2);
    } else if (code == 'r') {
      options.repetitions = positive("--reps", optarg, 1);
    } else if (code == 'j') {
      options.json_file = optarg;
    } else if (code == 'q') {
      options.repetitions = 5;
      options.max_bytes = 4u << 20;
    } else if (code == 'o') {
      options.only = optarg;
    } else if (code == 'w') {
      options.own_hosts = true;
    } else if (code == 'h') {
      options.help = true;
    } else {
      throw UsageError(std::string(code == ':' ? "missing argument of " : "unknown flag ") +
                       argv[optind - 1]);
    }
  }
  if (optind < argc) throw UsageError(std::string("unexpected argument ") + argv[optind]);
  return options;
}

std::vector<size_t> sizes(const CompareOptions& options) {
  std::vector<size_t> all = {8,         64,       512,      4 << 10,   16 << 10, 64 << 10,
                             256 << 10, 1u << 20, 4u << 20, 16u << 20, 64u << 20};
  if (options.factor != 0 || options.max_bytes > all.back()) {
    const auto factor = static_cast<size_t>(options.factor != 0 ? options.factor : 4);
    if (options.factor != 0) all = {8};
    while (all.back() <= options.max_bytes / factor) all.push_back(all.back() * factor);
  }
  std::erase_if(all, [&](size_t bytes) { return bytes > options.max_bytes; });
  return all;
}

bool wanted(const CompareOptions& options, std::string_view collective) {
  const auto enclosed = [](std::string_view names) {
    return std::string(",").append(names).append(",");
  };
  return options.only.empty() ||
         enclosed(options.only).find(enclosed(collective)) != std::string::npos;
}

ncclComm_t connect(int rank, int nranks) {
  ncclUniqueId id{};
  if (rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, nranks, id, rank), "ncclCommInitRank");
  return comm;
}

int compare(const CompareOptions& options, int rank, int nranks) {
  if (weftHostMode() != 1)
    throw UsageError("MPI and the library share host buffers: host mode only");
  if (options.own_hosts) setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
  const Job job{connect(rank, nranks), rank, nranks};
  // A block has at least one element per rank, so it may need more than the requested array.
  const size_t room = options.max_bytes + static_cast<size_t>(nranks) * sizeof(float);
  std::vector<Entry> entries;
  {
    const Arena malloced(Arena::Memory::kMalloc, room);
    const Arena nccl(Arena::Memory::kNccl, room);
    if (rank == 0) print_table_header(nranks, options.repetitions);
    for (const Contest& contest : contests()) {
      if (!wanted(options, contest.name)) continue;
      for (const size_t bytes : sizes(options)) {
        entries.push_back({std::string(contest.name),
                           compete(contest, job, malloced, nccl, bytes, options.repetitions)});
        if (rank == 0) print_entry(entries.back());
      }
    }
  }
  check(ncclCommDestroy(job.comm), "ncclCommDestroy");
  const Summary summary = summarize(entries);
  if (rank == 0) {
    print_summary(summary);
    if (!options.json_file.empty()) {
      const std::string path =
          write_new_file(options.json_file, to_json(entries, summary, nranks, options.repetitions));
      std::printf("# results in %s\n", path.c_str());
    }
  }
  return summary.wrong == 0 ? kExitOk : kExitFailed;
}

int run(int argc, char** argv) {
  int rank = 0;
  int nranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  try {
    const CompareOptions options = parse(argc, argv);
    if (!options.help) return compare(options, rank, nranks);
    if (rank == 0) std::printf("%s", kUsage);
    return kExitOk;
  } catch (const UsageError& error) {
    if (rank == 0) std::fprintf(stderr, "mpi_compare: %s\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_compare: rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, kExitLibrary);
    std::_Exit(kExitLibrary);
  }
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = weft::perf::run(argc, argv);
  MPI_Finalize();
  return code;
}
