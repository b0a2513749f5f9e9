#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "job/config_yaml.h"
#include "job/job_yaml.h"
#include "job/program_classes.h"
#include "job/programs.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/job/compile.h"

namespace rpeg {
namespace {

constexpr Bounds kInt{-1.0, 2147483647.0};
constexpr Bounds kAny{-9.2e18, 9.2e18};
constexpr std::size_t kDigestLength = 64;

/// Refuses a file whose content is not the one that was compiled.
void check_digest(const std::string& text, const std::string& file) {
  const std::size_t content_begin = kJobHeader.size() + kDigestLength + 2;
  if (!text.starts_with(kJobHeader) || text.size() < content_begin) {
    throw Error(ErrorKind::kUsage, "this is not a run.yaml written by rpeg-jobplan", file);
  }
  const std::string recorded = text.substr(kJobHeader.size(), kDigestLength);
  std::size_t end = text.find("\nprovenance:", content_begin);
  end = end == std::string::npos ? text.size() : end + 1;
  const std::string actual = sha256(text.substr(content_begin, end - content_begin));
  if (recorded != actual) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the file was altered after it was compiled: its digest is {}, its "
                            "content has {}; change job.yaml or the plan and run rpeg-jobplan "
                            "again",
                            recorded,
                            actual),
                file);
  }
}

std::vector<std::int64_t> integers(MapReader& map, const std::string& key) {
  std::vector<std::int64_t> numbers;
  map.sequence(key, true, [&](const YamlValue& item, const std::string& path) {
    numbers.push_back(yaml_integer(item, path, map.faults(), kAny));
  });
  return numbers;
}

void read_inputs(MapReader& root, Job* job) {
  job->plan_digest = root.string("plan_digest");
  root.sequence("inputs", true, [&](const YamlValue& value, const std::string& path) {
    MapReader item(value, path, root.faults());
    const std::string file = item.string("path");
    job->input_digests.emplace_back(file, item.string("sha256"));
    item.finish();
  });
}

VertexId read_vertex(MapReader& map, const std::string& key, const Graph& graph) {
  const std::string name = map.string(key);
  const VertexId vertex = find_vertex(graph, name);
  if (vertex == VertexId{-1}) {
    map.fault(key, fmt::format("there is no vertex `{}`", name));
    return VertexId{0};
  }
  return vertex;
}

/// The slices of [begin, end, n, n tensors, …], ascending; empty when it is no such list.
std::vector<WeightSlice> slices_of(const std::vector<std::int64_t>& numbers, std::size_t tensors) {
  std::vector<WeightSlice> slices;
  for (std::size_t at = 0; at + 3 <= numbers.size();) {
    const std::int64_t count = numbers[at + 2];
    const std::size_t first = at + 3;
    if (count < 1 || static_cast<std::size_t>(count) > numbers.size() - first) {
      return {};
    }
    for (std::size_t i = first; i < first + static_cast<std::size_t>(count); ++i) {
      if (numbers[i] < 0 || static_cast<std::size_t>(numbers[i]) >= tensors) {
        return {};
      }
      slices.push_back({static_cast<std::int32_t>(numbers[i]), numbers[at], numbers[at + 1]});
    }
    at = first + static_cast<std::size_t>(count);
  }
  std::sort(slices.begin(), slices.end());
  return slices;
}

void read_messages(MapReader& transfer_map, WeightTransfer* transfer) {
  transfer_map.sequence("messages", true, [&](const YamlValue& value, const std::string& path) {
    MapReader map(value, path, transfer_map.faults());
    WeightMessage message;
    message.bytes = map.integer("bytes", kAtLeastZero);
    message.slices = slices_of(integers(map, "slices"), transfer->tensors.size());
    if (message.slices.empty()) {
      map.fault("slices", "not a list of slices");
    }
    const std::vector<std::int64_t> pairs = integers(map, "pairs");
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      message.from = static_cast<int>(pairs[i]);
      message.to = static_cast<int>(pairs[i + 1]);
      transfer->messages.push_back(message);
    }
    map.finish();
  });
  std::sort(transfer->messages.begin(),
            transfer->messages.end(),
            [](const WeightMessage& a, const WeightMessage& b) {
              return std::pair(a.from, a.to) < std::pair(b.from, b.to);
            });
}

void read_transfers(MapReader& root, Job* job) {
  root.sequence("transfers", true, [&](const YamlValue& value, const std::string& path) {
    MapReader map(value, path, root.faults());
    WeightTransfer transfer;
    transfer.producer = read_vertex(map, "producer", job->graph);
    transfer.consumer = read_vertex(map, "consumer", job->graph);
    transfer.from = static_cast<int>(map.integer("from_copy", kInt));
    transfer.to = static_cast<int>(map.integer("to_copy", kInt));
    transfer.delta = map.integer("delta", kAtLeastZero);
    map.sequence("tensors", true, [&](const YamlValue& item, const std::string& item_path) {
      MapReader tensor_map(item, item_path, map.faults());
      TransferTensor tensor;
      tensor.name = tensor_map.string("name");
      tensor.shape = integers(tensor_map, "shape");
      tensor.dim = static_cast<int>(tensor_map.integer("dim", kInt));
      tensor_map.finish();
      transfer.tensors.push_back(std::move(tensor));
    });
    read_messages(map, &transfer);
    map.finish();
    job->transfers.push_back(std::move(transfer));
  });
}

ClassStep read_step(const YamlValue& value,
                    const std::string& path,
                    Faults& faults,
                    const Job& job) {
  std::vector<std::string> kinds;
  for (int i = 0; i <= static_cast<int>(InstructionKind::kReceiveWeights); ++i) {
    kinds.emplace_back(to_string(static_cast<InstructionKind>(i)));
  }
  std::vector<std::string> payloads;
  for (int i = 0; i <= static_cast<int>(Payload::kActorLogprobs); ++i) {
    payloads.emplace_back(to_string(static_cast<Payload>(i)));
  }
  MapReader map(value, path, faults);
  ClassStep step;
  step.kind = static_cast<InstructionKind>(map.choice("op", kinds));
  step.vertex = read_vertex(map, "vertex", job.graph);
  step.payload = static_cast<Payload>(map.choice("payload", payloads, 0));
  step.tag = static_cast<int>(map.integer("tag", kInt, 0));
  step.transfer = static_cast<int>(map.integer("transfer", kInt, -1));
  step.shift = map.integer("shift", kAtLeastZero, 0);
  map.finish();
  return step;
}

std::vector<std::vector<ClassStep>> read_classes(MapReader& root, const Job& job) {
  std::vector<std::vector<ClassStep>> classes;
  root.sequence("classes", true, [&](const YamlValue& value, const std::string& path) {
    MapReader map(value, path, root.faults());
    classes.emplace_back();
    map.sequence("steps", true, [&](const YamlValue& item, const std::string& item_path) {
      classes.back().push_back(read_step(item, item_path, map.faults(), job));
    });
    map.finish();
  });
  return classes;
}

/// [count, row…] or [count, row…, step…].
RowRun read_run(const YamlValue& value, const std::string& path, Faults& faults) {
  std::vector<std::int64_t> numbers;
  for (const YamlValue& item : value.items) {
    numbers.push_back(yaml_integer(item, path, faults, kAny));
  }
  RowRun run;
  run.count = numbers.empty() ? 0 : numbers[0];
  const std::size_t width = numbers.empty() ? 0 : numbers.size() - 1;
  if (run.count < 1 || (run.count > 1 && width % 2 != 0)) {
    faults.add(value, path, "not a run of rows");
    return {};
  }
  const auto row = numbers.begin() + 1;
  const auto middle = row + static_cast<std::ptrdiff_t>(run.count > 1 ? width / 2 : width);
  run.row.assign(row, middle);
  run.step.assign(middle, numbers.end());
  return run;
}

void read_ranks(MapReader& root, Job* job) {
  const auto classes = read_classes(root, *job);
  root.sequence("ranks", true, [&](const YamlValue& value, const std::string& path) {
    MapReader map(value, path, root.faults());
    RankSpec rank;
    rank.gpu = static_cast<int>(map.integer("gpu", kInt));
    rank.node = static_cast<int>(map.integer("node", kInt));
    rank.slot = static_cast<int>(map.integer("slot", kInt));
    RankProgram program;
    program.class_index = static_cast<std::size_t>(map.integer("class", kAtLeastZero));
    map.sequence("rows", true, [&](const YamlValue& runs, const std::string& runs_path) {
      program.steps.emplace_back();
      for (const YamlValue& run : runs.items) {
        program.steps.back().push_back(read_run(run, runs_path, map.faults()));
      }
    });
    map.finish();
    if (program.class_index >= classes.size()) {
      map.fault("class", "there is no such class");
    } else if (root.faults().empty()) {
      rank.program = expand_program(*job, classes[program.class_index], program);
    }
    job->ranks.push_back(std::move(rank));
  });
}

/// The embedded plan, from which the graph is built again.
void read_plan(MapReader& root, const std::string& file, Job* job) {
  PlanFile plan = parse_plan_file(root.string("plan"), file + " (plan)");
  job->inputs = std::move(plan.inputs);
  job->plan = std::move(plan.plan);
  job->schedule = std::move(plan.schedule);
  job->predicted = std::move(plan.predicted);
  build_task_graph(job);
}

}  // namespace

Job load_job(const std::filesystem::path& path) {
  const std::string file = path.string();
  const std::string text = read_file(path);
  check_digest(text, file);
  const YamlValue document = parse_yaml(text, file);
  Faults faults(file);
  MapReader root(document, "", faults);
  for (const char* key : {"schema", "units", "digest", "graph", "provenance"}) {
    root.ignore(key);  // checked above, or derived from the plan for the reader's eyes
  }
  Job job;
  read_plan(root, file, &job);
  job.seed = static_cast<std::uint64_t>(root.integer("seed", kAtLeastZero));
  read_inputs(root, &job);
  std::vector<std::string> warnings;
  MapReader config = root.map("config", true);
  job.config = read_job_config(config, {job.inputs, path.parent_path(), warnings, job.seed});
  read_transfers(root, &job);
  faults.throw_if_any();
  read_ranks(root, &job);
  root.finish();
  faults.throw_if_any();
  build_blocks(&job);
  build_copies(&job);
  return job;
}

}  // namespace rpeg
