// SPDX-License-Identifier: Apache-2.0

// Checkpoints: what one layout saved, another loads, and training goes on as if nothing had happened; a
// damaged one is noticed and passed over.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "runtime/checkpoint/hugging_face.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

using test::WantedPlan;

std::filesystem::path fresh_folder(const std::string& name) {
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("checkpoint_" + name);
  std::filesystem::remove_all(folder);
  return folder;
}

std::string corpus() {
  std::string file = testing::TempDir() + "/checkpoint_corpus.txt";
  std::string text;
  for (int i = 0; i < 300; ++i) text += "sentence " + std::to_string(i * 37 % 101) + " of the corpus. ";
  write_file_atomically(file, text);
  return file;
}

struct Resumption {
  const Checkpoint* from = nullptr;
  std::filesystem::path save;
  int64_t save_every = 0, keep = 2;
};

std::vector<double> losses(const WantedPlan& request, int64_t steps, const Resumption& resumption) {
  const Plan plan = test::make_plan(request);
  TrainOptions options;
  options.steps = 12;  // the schedule of the learning rate is that of the whole run
  options.warmup_steps = 3;
  options.timeout = std::chrono::seconds(60);
  options.checkpoints = resumption.save.string();
  options.save_every = resumption.save_every;
  options.keep = resumption.keep;
  const Dataset data = test::make_dataset(corpus(), plan, 1);
  std::atomic<bool> stop{false};
  std::vector<double> out;
  RunInputs inputs{&data};
  inputs.resume = resumption.from;
  train(
      plan, options, inputs,
      [&](const reports::StepRecord& r) {
        out.push_back(r.loss);
        if (r.step == steps) stop = true;
      },
      stop);
  return out;
}

std::unique_ptr<Checkpoint> newest(const std::filesystem::path& folder) {
  std::vector<std::string> notes;
  auto checkpoint = open_newest(folder, notes);
  EXPECT_TRUE(checkpoint) << folder;
  return checkpoint;
}

TEST(Checkpoint, TheSameLayoutContinuesToTheBit) {
  for (const ModelSpec& model : {test::little_gpt(), test::little_mixtral()}) {
    WantedPlan request{model};
    request.data = 2;
    request.zero = 2;
    request.pipeline = 2;
    const auto folder = fresh_folder("same");
    const std::vector<double> whole = losses(request, 12, {});
    losses(request, 5, {nullptr, folder});
    const auto checkpoint = newest(folder);
    EXPECT_EQ(checkpoint->info().step, 5);
    EXPECT_EQ(checkpoint->info().samples, 40);
    const std::vector<double> rest = losses(request, 12, {checkpoint.get(), {}});
    EXPECT_EQ(rest, std::vector<double>(whole.begin() + 5, whole.end())) << model.name;
  }
}

// tp2 sp, pp2 with two chunks in a V, dp4 with ZeRO 3: each resumes what another saved.
TEST(Checkpoint, AnyLayoutContinuesWhatAnyOtherSaved) {
  for (const ModelSpec& model : {test::little_gpt(), test::little_qwen(), test::little_mixtral()}) {
    std::vector<WantedPlan> layouts(4, WantedPlan{model});
    layouts[0].tensor = layouts[0].pipeline = 2;
    layouts[0].sequence_parallel = true;
    layouts[1].data = 4;
    layouts[1].zero = 3;
    layouts[2].pipeline = layouts[2].chunks = 2;
    layouts[2].schedule = "zb-v";
    layouts[3].context = layouts[3].data = 2;
    layouts[3].zero = 1;
    if (model.moe() != nullptr) layouts[3].expert = 4;
    const std::vector<double> whole = losses(layouts[0], 12, {});
    for (const WantedPlan& saving : layouts) {
      const auto folder = fresh_folder("any");
      losses(saving, 6, {nullptr, folder});
      const auto checkpoint = newest(folder);
      for (const WantedPlan& resuming : layouts) {
        const std::vector<double> rest = losses(resuming, 12, {checkpoint.get(), {}});
        ASSERT_EQ(rest.size(), 6u);
        for (size_t i = 0; i < rest.size(); ++i)
          EXPECT_NEAR(rest[i], whole[i + 6], 2e-5 * whole[i + 6]) << model.name << " step " << i + 7;
      }
    }
  }
}

// Masters and moments are the same numbers in either memory, and a checkpoint does not know which.
TEST(Checkpoint, AnOffloadedOptimizerContinuesOneThatIsNotToTheBitAndTheReverse) {
  const std::pair<Precision, int64_t> kinds[] = {
      {Precision::fp32, 2}, {Precision::bf16, 3}, {Precision::fp16, 0}};
  for (const auto& [precision, zero] : kinds) {
    WantedPlan inside{test::little_gpt()};
    inside.data = inside.tensor = 2;
    inside.zero = zero;
    inside.precision = precision;
    WantedPlan offloaded = inside;
    offloaded.offload_optimizer = true;
    const std::vector<double> whole = losses(inside, 8, {});
    for (const auto& [saving, resuming] :
         {std::pair{inside, offloaded}, {offloaded, inside}, {offloaded, offloaded}}) {
      const auto folder = fresh_folder("offload");
      losses(saving, 5, {nullptr, folder});
      const std::vector<double> rest = losses(resuming, 8, {newest(folder).get(), {}});
      EXPECT_EQ(rest, std::vector<double>(whole.begin() + 5, whole.end()))
          << enum_name(precision) << ", zero " << zero;
    }
  }
}

TEST(Checkpoint, KeepsTheNewestAndSavesWhereAsked) {
  const auto folder = fresh_folder("keep");
  losses({test::little_gpt()}, 10, {nullptr, folder, 3, 2});
  const auto all = checkpoints_in(folder);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].filename(), checkpoint_name(10));
  EXPECT_EQ(all[1].filename(), checkpoint_name(9));
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

// As a fresh run in a folder of another one, which mpt-run refuses.
TEST(Checkpoint, TheOneJustWrittenIsNeverDeletedNorOneOfALaterStep) {
  const auto folder = fresh_folder("used");
  losses({test::little_gpt()}, 9, {nullptr, folder, 0, 1});
  losses({test::little_gpt()}, 3, {nullptr, folder, 1, 1});
  EXPECT_EQ(names_in(folder), (std::set<std::string>{checkpoint_name(3), checkpoint_name(9)}));
}

TEST(Checkpoint, OnlyOwnFilesAreDeleted) {
  const auto folder = fresh_folder("foreign");
  std::set<std::string> foreign{"step-1", "step-00000002", "step-100", "step-00000100", ".unfinished-mine"};
  for (const std::string& name : foreign) {
    std::filesystem::create_directories(folder / name);
    write_file_atomically(folder / name / "weights", "of others");
  }
  write_file_atomically(folder / "step-00000002" / "checkpoint.json", "{\"step\": 2}");
  for (const char* name : {"step-7", "step-00000004"}) {
    write_file_atomically(folder / name, "of others");
    foreign.insert(name);
  }
  // A kill of mpt-run leaves this.
  std::filesystem::create_directories(folder / ".unfinished-step-00000003");
  write_file_atomically(folder / ".unfinished-step-00000003" / "rank-00000.safetensors.part", "half");
  losses({test::little_gpt()}, 6, {nullptr, folder, 2, 1});
  std::set<std::string> expected = foreign;
  // In the way of the run's own checkpoints.
  expected.erase("step-00000002");
  expected.erase("step-00000004");
  expected.insert({"step-00000002.before-1", "step-00000004.before-1", checkpoint_name(6)});
  EXPECT_EQ(names_in(folder), expected);
  EXPECT_EQ(names_in(folder / "step-00000002.before-1"),
            (std::set<std::string>{"checkpoint.json", "weights"}));
}

TEST(Checkpoint, WhatOthersPutIntoOneStays) {
  const auto folder = fresh_folder("guest");
  losses({test::little_gpt()}, 2, {nullptr, folder, 0, 1});
  write_file_atomically(folder / checkpoint_name(2) / "notes.txt", "keep me");
  losses({test::little_gpt()}, 4, {newest(folder).get(), folder, 0, 1});
  EXPECT_EQ(names_in(folder / checkpoint_name(2)), (std::set<std::string>{"notes.txt"}));
  EXPECT_EQ(newest(folder)->info().step, 4);
}

TEST(Checkpoint, ADamagedLaterOneDoesNotPushAWholeOneOut) {
  const auto folder = fresh_folder("later");
  losses({test::little_gpt()}, 8, {nullptr, folder, 4, 9});
  std::filesystem::remove(folder / checkpoint_name(8) / "rank-00000.safetensors");
  losses({test::little_gpt()}, 9, {newest(folder).get(), folder, 0, 2});
  EXPECT_EQ(names_in(folder),
            (std::set<std::string>{checkpoint_name(4), checkpoint_name(8), checkpoint_name(9)}));
}

TEST(Checkpoint, ARunThatBeginsBeforeTheNewestIsRefused) {
  const auto folder = fresh_folder("refused");
  EXPECT_NO_THROW(check_no_later_checkpoints(folder, 0, ""));
  losses({test::little_gpt()}, 4, {nullptr, folder, 2, 2});
  std::filesystem::create_directories(folder / checkpoint_name(9));  // of others
  EXPECT_NO_THROW(check_no_later_checkpoints(folder, 4, ""));
  for (const int64_t start : {0, 2}) {
    try {
      check_no_later_checkpoints(folder, start, "do that");
      ADD_FAILURE() << start;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(checkpoint_name(4)), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("do that"), std::string::npos);
    }
  }
}

TEST(Checkpoint, APipeAsDescriptionIsRefusedAndNotWaitedFor) {
  const auto folder = fresh_folder("pipe") / checkpoint_name(1);
  std::filesystem::create_directories(folder);
  ASSERT_EQ(::mkfifo((folder / "checkpoint.json").c_str(), 0600), 0);
  EXPECT_THROW(Checkpoint{folder}, UserError);
  EXPECT_FALSE(own_checkpoint_step(folder));
}

// A rank's file with other metadata, and the index as if it had always been so.
void replace_file(const std::filesystem::path& checkpoint, const std::string& name,
                  const SafetensorsFile& content, const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> tensors;
  for (const auto& [tensor, entry] : content.entries()) tensors.push_back({tensor, entry.type, entry.shape});
  SafetensorsWriter writer(checkpoint / (name + ".new"), tensors, metadata);
  for (const auto& [tensor, entry] : content.entries()) writer.append(content.data(entry), entry.bytes);
  writer.finish();
  std::filesystem::rename(checkpoint / (name + ".new"), checkpoint / name);
  Json index = load_json(checkpoint / "checkpoint.json");
  for (Json& file : index["files"]) {
    if (file["name"] != name) continue;
    file["bytes"] = writer.bytes();
    file["crc32"] = writer.crc32();
  }
  write_file_atomically(checkpoint / "checkpoint.json", index.dump());
}

TEST(Checkpoint, AFileOfAnotherRunIsRefused) {
  WantedPlan request{test::little_gpt()};
  request.pipeline = 2;
  const auto folder = fresh_folder("runs"), other = fresh_folder("other_run");
  losses(request, 4, {nullptr, folder, 2, 9});
  losses(request, 4, {nullptr, other});
  const std::string name = "rank-00001.safetensors", own = newest(folder)->info().run;
  const SafetensorsFile of_other(other / checkpoint_name(4) / name);
  EXPECT_EQ(own.size(), 16u);
  EXPECT_NE(of_other.metadata().at("run"), own) << "each run draws a number of its own";
  EXPECT_EQ(SafetensorsFile(folder / checkpoint_name(4) / name).metadata().at("run"), own);
  replace_file(folder / checkpoint_name(4), name, of_other, of_other.metadata());
  std::vector<std::string> notes;
  const auto checkpoint = open_newest(folder, notes);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->info().step, 2);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("a file of run \"" + of_other.metadata().at("run")), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("one of run \"" + own), std::string::npos) << notes[0];
}

// Older versions wrote no number of the run.
TEST(Checkpoint, OneWithoutANumberOfItsRunIsLoaded) {
  const auto folder = fresh_folder("old");
  const std::vector<double> whole = losses({test::little_gpt()}, 8, {});
  losses({test::little_gpt()}, 4, {nullptr, folder});
  const auto step = folder / checkpoint_name(4);
  const std::string name = "rank-00000.safetensors";
  replace_file(step, name, SafetensorsFile(step / name), {{"format", "mpt-checkpoint"}});
  EXPECT_THROW(Checkpoint{step}, UserError) << "the index has one still";
  Json index = load_json(step / "checkpoint.json");
  EXPECT_EQ(index.erase("run"), 1u);
  write_file_atomically(step / "checkpoint.json", index.dump());
  const std::vector<double> rest = losses({test::little_gpt()}, 8, {newest(folder).get(), {}});
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 4, whole.end()));
}

// One process's part of a run with two processes of one rank each.
void save_part(CheckpointSaver& saver, int rank, const std::string& run) {
  CheckpointInfo info;
  info.step = 3;
  info.run = run;
  info.model = test::little_gpt();
  RankSnapshot snapshot;
  snapshot.pieces = {{TensorKind::value, "w", 0, 1, 0, 1, std::vector<char>(4)}};
  saver.add(rank, info, snapshot);
}

TEST(Checkpoint, AProcessOfAnOlderRunAddsNothingToAStep) {
  const auto folder = fresh_folder("late");
  SaveOptions first, other;
  first.folder = other.folder = folder;
  first.ranks = other.ranks = 2;
  first.patience_s = 0.3;
  other.leader = false;
  CheckpointSaver leader(first), late(other), member(other);
  save_part(late, 1, "older");
  late.wait();
  save_part(leader, 0, "newer");
  EXPECT_THROW(leader.wait(), RunError) << "the rank of this run has written nothing";
  CheckpointSaver again(first);
  save_part(member, 1, "newer");
  save_part(again, 0, "newer");
  again.wait();
  save_part(late, 1, "older");
  late.wait();
  EXPECT_EQ(SafetensorsFile(folder / checkpoint_name(3) / "rank-00001.safetensors").metadata().at("run"),
            "newer");
  EXPECT_EQ(load_json(folder / checkpoint_name(3) / "checkpoint.json")["run"], "newer");
  CheckpointSaver next(first);  // a run that begins removes what is left
  EXPECT_EQ(names_in(folder), (std::set<std::string>{checkpoint_name(3)}));
}

TEST(Checkpoint, OneThatIsNotKeptIsShownAndDeleted) {
  const auto folder = fresh_folder("shown");
  SaveOptions options;
  options.folder = folder;
  std::vector<std::pair<int64_t, std::set<std::string>>> shown;
  options.on_saved = [&](const auto& path, int64_t step) { shown.emplace_back(step, names_in(path)); };
  CheckpointSaver saver(options);
  for (const bool kept : {true, false}) {
    CheckpointInfo info;
    info.step = kept ? 1 : 2;
    info.model = test::little_gpt();
    RankSnapshot snapshot;
    snapshot.pieces = {{TensorKind::value, "w", 0, 1, 0, 1, std::vector<char>(4)}};
    saver.add(0, info, snapshot, kept);
    saver.wait();
  }
  const std::set<std::string> whole{"checkpoint.json", "rank-00000.safetensors"};
  EXPECT_EQ(shown, (std::vector<std::pair<int64_t, std::set<std::string>>>{{1, whole}, {2, whole}}));
  EXPECT_EQ(names_in(folder), (std::set<std::string>{checkpoint_name(1)}));
}

TEST(Checkpoint, ADamagedOneIsPassedOver) {
  const auto folder = fresh_folder("damaged");
  WantedPlan request{test::little_gpt()};
  request.pipeline = 2;
  const auto damage = [&](const std::function<void(const std::filesystem::path&)>& how) {
    std::filesystem::remove_all(folder);
    losses(request, 8, {nullptr, folder, 4, 9});
    how(folder / checkpoint_name(8));
    std::vector<std::string> notes;
    const auto checkpoint = open_newest(folder, notes);
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->info().step, 4);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find(checkpoint_name(8)), std::string::npos);
    EXPECT_NE(notes[0].find("; taking " + checkpoint_name(4) + " instead"), std::string::npos) << notes[0];
    EXPECT_THROW(Checkpoint{folder / checkpoint_name(8)}, UserError);
  };
  damage([](const auto& c) { std::filesystem::resize_file(c / "rank-00001.safetensors", 1000); });
  damage([](const auto& c) { std::filesystem::remove(c / "rank-00000.safetensors"); });
  damage([](const auto& c) { std::filesystem::resize_file(c / "checkpoint.json", 200); });
  damage([](const auto& c) {
    std::fstream file(c / "rank-00000.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-10, std::ios::end);
    file.put('?');
  });
}

// A checkpoint with a rank file of other pieces than were saved, all of them ones, and right checksums.
std::filesystem::path rewritten(const std::function<void(std::vector<NamedTensor>&)>& change) {
  const auto saved = fresh_folder("pieces");
  losses({test::little_gpt()}, 1, {nullptr, saved});
  const auto folder = saved / checkpoint_name(1), file = folder / "rank-00000.safetensors";
  CheckpointInfo info = Checkpoint(folder).info();
  std::vector<NamedTensor> pieces;
  {
    const SafetensorsFile before(file);
    for (const auto& [name, entry] : before.entries()) pieces.push_back({name, entry.type, entry.shape});
  }
  change(pieces);
  SafetensorsWriter writer(file, pieces, {{"run", info.run}});
  for (const NamedTensor& piece : pieces) {
    const std::vector<float> values(size_t(piece.shape[0] * piece.shape[1]), 1.0f);
    writer.append(values.data(), int64_t(values.size() * sizeof(float)));
  }
  writer.finish();
  info.files = {{file.filename(), int64_t(std::filesystem::file_size(file)), int64_t(file_crc32(file))}};
  write_file_atomically(folder / "checkpoint.json", to_json(info).dump());
  return folder;
}

// The token table's values as these pieces: row, column, rows, columns.
std::filesystem::path table_of(const std::vector<ShardBlock>& blocks) {
  return rewritten([&](std::vector<NamedTensor>& pieces) {
    std::erase_if(pieces, [](const NamedTensor& p) { return p.name == "value/embedding.weight@0,0"; });
    for (const ShardBlock& b : blocks)
      pieces.push_back({fmt::format("value/embedding.weight@{},{}", b.global_row, b.global_column),
                        DataType::float32,
                        {b.rows, b.columns}});
  });
}

void expect_refused(const std::filesystem::path& folder, const std::string& said) {
  try {
    const Checkpoint taken(folder);
    ADD_FAILURE() << said;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
  }
}

TEST(Checkpoint, AnElementThatComesTwiceDoesNotStandForOneThatIsMissing) {
  const int64_t v = test::little_gpt().vocab, h = test::little_gpt().hidden;
  std::vector<double> read(size_t(v * h), 0.0);
  const Checkpoint whole(table_of({{1, v - 1, 0, h}, {0, 1, 0, h - 1}, {0, 1, h - 1, 1}}));
  whole.read(TensorKind::value, "embedding.weight", {0, v, 0, h}, read.data());
  EXPECT_EQ(read, std::vector<double>(read.size(), 1.0));
  for (const std::vector<ShardBlock>& blocks : {std::vector<ShardBlock>{{0, 1, 0, h}, {0, v, 1, h - 1}},
                                                {{0, v, 0, h - 1}, {1, v - 1, 0, h}},
                                                {{0, v, 0, 1}, {0, v, 1, h - 1}, {1, 1, 1, 1}}})
    expect_refused(table_of(blocks), "two pieces of value/embedding.weight");
}

TEST(Checkpoint, APieceThatIsMissingIsSeenWhenItIsOpened) {
  const int64_t v = test::little_gpt().vocab, h = test::little_gpt().hidden;
  expect_refused(table_of({}), "no value of the size of the others for embedding.weight");
  expect_refused(table_of({{0, v - 1, 0, h}}), "no value of the size of the others for embedding.weight");
  expect_refused(table_of({{0, 1, 0, h}, {2, v - 2, 0, h}}), "elements of value/embedding.weight");
  expect_refused(table_of({{int64_t{9'000'000'000'000'000'000}, v, 0, h}}), "kind/name@row,column");
  expect_refused(rewritten([](auto& pieces) {
                   std::erase_if(pieces, [](const NamedTensor& p) {
                     return p.name.find("/embedding.weight@") != std::string::npos;
                   });
                 }),
                 " weights; expected the ");
}

// What tells of an unreadable checkpoint is no sign that there is none.
TEST(Checkpoint, WhereNoneCanBeReadNoneIsTakenForAbsence) {
  const auto folder = fresh_folder("unreadable");
  losses({test::little_gpt()}, 6, {nullptr, folder, 2, 3});
  std::filesystem::resize_file(folder / checkpoint_name(2) / "rank-00000.safetensors", 1000);
  std::filesystem::remove(folder / checkpoint_name(4) / "checkpoint.json");
  std::filesystem::rename(folder / checkpoint_name(6), folder / "elsewhere");
  std::filesystem::create_directory_symlink("gone", folder / checkpoint_name(6));
  const auto before = names_in(folder);
  std::vector<std::string> notes;
  try {
    open_newest(folder, notes);
    ADD_FAILURE();
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const std::string& part :
         {checkpoint_name(2), checkpoint_name(4), checkpoint_name(6),
          std::string("none of its 3 checkpoints can be read"), std::string("--checkpoints")})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_TRUE(notes.empty());
  EXPECT_THROW(check_no_later_checkpoints(folder, 2, ""), UserError);  // 4 has no description
  EXPECT_EQ(names_in(folder), before);
  write_file_atomically(folder / "file", "");
  EXPECT_THROW(checkpoints_in(folder / "file"), UserError);
  EXPECT_TRUE(checkpoints_in(folder / "none").empty());
}

TEST(Checkpoint, WhatTheRunHasNotReadIsNeitherReplacedNorPruned) {
  const auto folder = fresh_folder("unread"), other = fresh_folder("unread_elsewhere");
  losses({test::little_gpt()}, 8, {nullptr, folder, 4, 9});
  std::filesystem::resize_file(folder / checkpoint_name(8) / "rank-00000.safetensors", 1000);
  losses({test::little_gpt()}, 8, {newest(folder).get(), folder});
  EXPECT_EQ(names_in(folder), (std::set<std::string>{checkpoint_name(4), checkpoint_name(8),
                                                     checkpoint_name(8) + ".before-1"}));
  losses({test::little_gpt()}, 2, {nullptr, other});
  losses({test::little_gpt()}, 10, {newest(folder).get(), other, 0, 1});
  EXPECT_EQ(names_in(other), (std::set<std::string>{checkpoint_name(2), checkpoint_name(10)}));
}

// Files may not grow beyond a limit, as on a full disk.
TEST(Checkpoint, AnExportThatFailsLeavesNothingInTheWayOfTheNext) {
  const auto folder = fresh_folder("export_from"), to = fresh_folder("export_to");
  losses({test::little_gpt()}, 1, {nullptr, folder});
  const auto checkpoint = newest(folder);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{10'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THROW(export_hugging_face(*checkpoint, checkpoint->info().model, to, {}), RunError);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(names_in(to).empty());
  export_hugging_face(*checkpoint, checkpoint->info().model, to, {});
  EXPECT_EQ(names_in(to), (std::set<std::string>{"config.json", "model.safetensors"}));
}

TEST(Checkpoint, AnotherModelsIsRefused) {
  const auto folder = fresh_folder("model");
  losses({test::little_gpt()}, 2, {nullptr, folder});
  const auto checkpoint = newest(folder);
  ModelSpec wider = test::little_gpt();
  wider.layers.change([](LayerKind& k) { k.mlp->ffn_hidden = 128; });
  EXPECT_THROW(losses({wider}, 12, {checkpoint.get(), {}}), RunError);
}

// Rectangles of a range cover exactly its elements, in order.
TEST(Checkpoint, RectanglesCoverARange) {
  Parameter p;
  p.blocks = {{4, 3, 10, 5}, {20, 2, 10, 5}};
  for (int64_t begin = 0; begin < 25; ++begin) {
    for (int64_t count = 1; begin + count <= 25; ++count) {
      std::vector<std::pair<int64_t, int64_t>> got, want;
      for (const ShardBlock& r : rectangles(p, begin, count)) {
        for (int64_t i = 0; i < r.count(); ++i)
          got.emplace_back(r.global_row + i / r.columns, r.global_column + i % r.columns);
      }
      for (int64_t i = begin; i < begin + count; ++i)
        want.emplace_back(i < 15 ? 4 + i / 5 : 20 + (i - 15) / 5, 10 + i % 5);
      EXPECT_EQ(got, want) << begin << " " << count;
    }
  }
}

}  // namespace
}  // namespace mpt::runtime
