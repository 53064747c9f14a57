#include "home.h"

#include <sys/stat.h>

#include <cstdlib>

#include "check.h"
#include "process.h"
#include "settings.h"

using softipu::Home;

static mode_t ModeOf(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? found.st_mode & 0777 : 0;
}

TEST("a state directory is made private, with its marker") {
  Home home;
  CHECK(!home.Exists());
  home.Prepare();
  CHECK(home.Exists());
  CHECK_EQUAL(ModeOf(home.path()), 0700u);
  CHECK_EQUAL(ModeOf(home.path() + "/ipus"), 0700u);
  CHECK_CONTAINS(check::ReadFile(home.path() + "/softipu-state.json"), "\"format\": 1");
  home.Write(home.RecordOf("x"), "text");
  CHECK_EQUAL(check::ReadFile(home.RecordOf("x")), "text");
  CHECK_EQUAL(ModeOf(home.RecordOf("x")), 0600u);
}

TEST("a directory shared on purpose gets files to share") {
  Home home;
  mkdir(home.path().c_str(), 0700);
  chmod(home.path().c_str(), 0770);
  home.Prepare();
  home.Write(home.RecordOf("x"), "text");
  CHECK_EQUAL(ModeOf(home.RecordOf("x")), 0660u);
  CHECK_EQUAL(ModeOf(home.path() + "/ipus"), 0770u);
}

TEST("a directory with other files in it is refused") {
  Home home;
  mkdir(home.path().c_str(), 0700);
  check::WriteFile(home.path() + "/letter.txt", "dear");
  CHECK_CONTAINS(check::ThrownBy([&] { home.Prepare(); }), "SIPU-1303");
}

TEST("a state directory of another format is refused") {
  Home home;
  mkdir(home.path().c_str(), 0700);
  check::WriteFile(home.path() + "/softipu-state.json", "{\"format\": 2}");
  CHECK_CONTAINS(check::ThrownBy([&] { home.Prepare(); }), "SIPU-1304");
}

TEST("a file where the state directory should be is refused") {
  Home home;
  check::WriteFile(home.path(), "text");
  CHECK_CONTAINS(check::ThrownBy([&] { home.Prepare(); }), "SIPU-1303");
}

TEST("the state directory follows XDG_STATE_HOME and HOME") {
  unsetenv("SOFTIPU_HOME");
  CHECK_EQUAL(Home().path(), std::string(getenv("HOME")) + "/.local/state/softipu");
  setenv("XDG_STATE_HOME", "/somewhere", 1);
  CHECK_EQUAL(Home().path(), "/somewhere/softipu");
  setenv("XDG_STATE_HOME", "relative", 1);
  CHECK_EQUAL(Home().path(), std::string(getenv("HOME")) + "/.local/state/softipu");
  setenv("SOFTIPU_HOME", "~/here", 1);
  CHECK_EQUAL(Home().path(), std::string(getenv("HOME")) + "/here");
  setenv("SOFTIPU_HOME", "~nobody-of-that-name/here", 1);
  CHECK_CONTAINS(check::ThrownBy([] { Home home; }), "SIPU-1101");
}

TEST("flags are words for yes and no, and nothing else") {
  setenv("GCDA_MONITOR", " On ", 1);
  CHECK(softipu::FlagSetting("GCDA_MONITOR", false));
  setenv("GCDA_MONITOR", "0", 1);
  CHECK(!softipu::FlagSetting("GCDA_MONITOR", true));
  setenv("GCDA_MONITOR", "", 1);
  CHECK(softipu::FlagSetting("GCDA_MONITOR", true));
  setenv("GCDA_MONITOR", "maybe", 1);
  CHECK_CONTAINS(check::ThrownBy([] { softipu::FlagSetting("GCDA_MONITOR", false); }),
                 "GCDA_MONITOR='maybe'");
}

TEST("times are numbers of seconds above 0") {
  setenv("SOFTIPU_INSTANCES_TIMEOUT", " 2.5 ", 1);
  CHECK_EQUAL(softipu::SecondsSetting("SOFTIPU_INSTANCES_TIMEOUT", 7), 2.5);
  setenv("SOFTIPU_INSTANCES_TIMEOUT", "", 1);
  CHECK_EQUAL(softipu::SecondsSetting("SOFTIPU_INSTANCES_TIMEOUT", 7), 7.0);
  for (const char* wrong : {"0", "-1", "soon", "5s", "inf", "nan", " "}) {
    setenv("SOFTIPU_INSTANCES_TIMEOUT", wrong, 1);
    CHECK_CONTAINS(check::ThrownBy([] { softipu::SecondsSetting("SOFTIPU_INSTANCES_TIMEOUT", 7); }),
                   "SIPU-1101: SOFTIPU_INSTANCES_TIMEOUT='");
  }
}

TEST("a process knows itself, and one that ended is gone") {
  const softipu::Identity me = softipu::ThisProcess();
  CHECK(me.start_ticks > 0);
  CHECK(softipu::CanSee(me));
  CHECK(!softipu::IsGone(me));
  softipu::Identity other = me;
  other.start_ticks += 1;  // a process that had this pid before
  CHECK(softipu::IsGone(other));
  other = me;
  other.boot_id = "an earlier boot";
  CHECK(softipu::IsGone(other));
  other.host = "elsewhere";  // nobody can tell
  CHECK(!softipu::IsGone(other));
}

TEST("texts for records are printable") {
  CHECK_EQUAL(softipu::Printable("a\nb\xc3\xa9"), "a?b??");
}
