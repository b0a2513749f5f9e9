#include <fmt/format.h>

#include <map>
#include <utility>

#include "job/config_yaml.h"
#include "job/job_yaml.h"
#include "job/program_classes.h"
#include "rpeg/base/file.h"
#include "rpeg/job/job.h"

namespace rpeg {
namespace {

template <typename Numbers>
std::string numbers_text(const Numbers& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

void write_inputs(YamlWriter& writer, const Job& job) {
  writer.field("plan_digest", job.plan_digest);
  writer.begin_sequence("inputs");
  for (const auto& [path, digest] : job.input_digests) {
    writer.raw_item(fmt::format(
        "{{path: {}, sha256: {}}}", yaml_scalar(path), yaml_scalar(std::string_view(digest))));
  }
  writer.end_sequence();
}

void write_graph(YamlWriter& writer, const Job& job) {
  const auto& vertices = job.graph.vertices;
  writer.begin_map("graph");
  writer.begin_sequence("vertices");
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    writer.raw_item(
        fmt::format("{{id: {}, op: {}, model: {}, ranks: {}}}",
                    vertices[i].name,
                    to_string(vertices[i].op),
                    to_string(vertices[i].model),
                    numbers_text(block_of(job, VertexId{static_cast<std::int32_t>(i)}).ranks)));
  }
  writer.end_sequence();
  writer.begin_sequence("edges");
  for (const Edge& edge : job.graph.edges) {
    writer.raw_item(fmt::format("{{from: {}, to: {}, kind: {}, delta: {}}}",
                                vertices[index(edge.from)].name,
                                vertices[index(edge.to)].name,
                                to_string(edge.kind),
                                edge.delta));
  }
  writer.end_sequence();
  writer.end_map();
}

/// [begin, end, n, n tensors, begin, end, …]: most tensors of a message have few distinct ranges.
std::string slices_text(const std::vector<WeightSlice>& slices) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> tensors;
  for (const WeightSlice& slice : slices) {
    tensors[{slice.begin, slice.end}].push_back(slice.tensor);
  }
  std::vector<std::int64_t> numbers;
  for (const auto& [range, list] : tensors) {
    numbers.insert(numbers.end(),
                   {range.first, range.second, static_cast<std::int64_t>(list.size())});
    numbers.insert(numbers.end(), list.begin(), list.end());
  }
  return numbers_text(numbers);
}

/// Replicas send and receive the same slices: each list of them is written once, with the pairs of
/// sender and receiver between which it goes.
void write_messages(YamlWriter& writer, const std::vector<WeightMessage>& messages) {
  std::map<std::vector<WeightSlice>, std::vector<const WeightMessage*>> by_slices;
  for (const WeightMessage& message : messages) {
    by_slices[message.slices].push_back(&message);
  }
  writer.begin_sequence("messages");
  for (const auto& [slices, equal] : by_slices) {
    std::vector<int> pairs;
    for (const WeightMessage* message : equal) {
      pairs.insert(pairs.end(), {message->from, message->to});
    }
    writer.raw_item(fmt::format("{{bytes: {}, slices: {}, pairs: {}}}",
                                equal.front()->bytes,
                                slices_text(slices),
                                numbers_text(pairs)));
  }
  writer.end_sequence();
}

void write_transfers(YamlWriter& writer, const Job& job) {
  writer.begin_sequence("transfers");
  for (const WeightTransfer& transfer : job.transfers) {
    writer.begin_item();
    writer.field("producer", job.graph.vertices[index(transfer.producer)].name);
    writer.field("consumer", job.graph.vertices[index(transfer.consumer)].name);
    writer.field("from_copy", static_cast<std::int64_t>(transfer.from));
    writer.field("to_copy", static_cast<std::int64_t>(transfer.to));
    writer.field("delta", transfer.delta);
    writer.begin_sequence("tensors");
    for (const TransferTensor& tensor : transfer.tensors) {
      writer.raw_item(fmt::format("{{name: {}, shape: {}, dim: {}}}",
                                  yaml_scalar(std::string_view(tensor.name)),
                                  numbers_text(tensor.shape),
                                  tensor.dim));
    }
    writer.end_sequence();
    write_messages(writer, transfer.messages);
    writer.end_item();
  }
  writer.end_sequence();
}

std::string step_text(const Job& job, const ClassStep& step) {
  std::string text = fmt::format(
      "{{op: {}, vertex: {}", to_string(step.kind), job.graph.vertices[index(step.vertex)].name);
  switch (step.kind) {
    case InstructionKind::kSend:
    case InstructionKind::kReceive:
      text += fmt::format(", payload: {}, tag: {}", to_string(step.payload), step.tag);
      break;
    case InstructionKind::kSendWeights:
    case InstructionKind::kReceiveWeights:
      text += fmt::format(", transfer: {}, tag: {}", step.transfer, step.tag);
      break;
    case InstructionKind::kGenerate:
    case InstructionKind::kInfer:
    case InstructionKind::kTrain:
      break;
  }
  if (step.shift != 0) {
    text += fmt::format(", shift: {}", step.shift);
  }
  return text + "}";
}

/// [count, row…] for a single row, [count, row…, step…] for more.
std::string run_text(const RowRun& run) {
  std::vector<std::int64_t> numbers{run.count};
  numbers.insert(numbers.end(), run.row.begin(), run.row.end());
  numbers.insert(numbers.end(), run.step.begin(), run.step.end());
  return numbers_text(numbers);
}

void write_programs(YamlWriter& writer, const Job& job) {
  const ProgramClasses programs = compress_programs(job.ranks);
  writer.comment("What ranks do in an iteration; ranks of a class differ in numbers only.");
  writer.begin_sequence("classes");
  for (const auto& steps : programs.classes) {
    writer.begin_item();
    writer.begin_sequence("steps");
    for (const ClassStep& step : steps) {
      writer.raw_item(step_text(job, step));
    }
    writer.end_sequence();
    writer.end_item();
  }
  writer.end_sequence();
  writer.comment("rows, one list for each step: runs [count, row, increment of the row].");
  writer.begin_sequence("ranks");
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    std::vector<std::string> steps;
    for (const auto& runs : programs.ranks[i].steps) {
      std::vector<std::string> texts;
      for (const RowRun& run : runs) {
        texts.push_back(run_text(run));
      }
      steps.push_back(yaml_flow(texts));
    }
    writer.raw_item(fmt::format("{{gpu: {}, node: {}, slot: {}, class: {}, rows: {}}}",
                                job.ranks[i].gpu,
                                job.ranks[i].node,
                                job.ranks[i].slot,
                                programs.ranks[i].class_index,
                                yaml_flow(steps)));
  }
  writer.end_sequence();
}

/// The plan as a literal block, so that it stays the plan file that it is.
std::string plan_block(const Job& job) {
  const std::string plan =
      plan_file_text({job.inputs, job.plan, job.schedule, job.predicted}, nullptr);
  std::string block = "plan: |\n";
  std::size_t begin = 0;
  while (begin < plan.size()) {
    const std::size_t end = std::min(plan.find('\n', begin), plan.size());
    if (end > begin) {
      block += "  " + plan.substr(begin, end - begin);
    }
    block += '\n';
    begin = end + 1;
  }
  return block;
}

}  // namespace

std::string job_text(const Job& job, const Provenance* provenance) {
  YamlWriter body;
  body.field("seed", static_cast<std::int64_t>(job.seed));
  write_inputs(body, job);
  body.begin_map("config");
  write_job_config(body, job.config, job.inputs.policy);
  body.end_map();
  write_graph(body, job);
  write_transfers(body, job);
  write_programs(body, job);
  const std::string content = body.text() + plan_block(job);
  std::string text = std::string(kJobHeader) + sha256(content) + "\"\n" + content;
  if (provenance != nullptr) {
    YamlWriter tail;
    write_provenance(tail, *provenance);
    text += tail.text();
  }
  return text;
}

}  // namespace rpeg
