"""CodeContests: the official formats, the program in a completion, the official comparison, the share of tests."""

import json
import logging
import pickle
import sys
import types
from dataclasses import replace

import pyarrow
import pyarrow.parquet
import pytest

from agpo_core import sandbox
from agpo_core.tasks import Graded, code_contests
from agpo_core.tasks.code_contests import INSTRUCTION, CodeContests, CodeProblem, extract, limits_of, outputs_match
from tests.data import DATA, needs_data

pytestmark = pytest.mark.filterwarnings("ignore:.*test records are here")  # the files here hold a few records
needs_sandbox = pytest.mark.skipif(
    bool(sandbox.missing(weak=False)), reason=f"no full sandbox here: {'; '.join(sandbox.missing(weak=False))}"
)
needs_cpp = pytest.mark.skipif(sandbox.compiler() is None, reason="no g++")


def record(**changes):
    """A problem in the official schema: print the sum of two numbers."""
    return {
        "name": "1_A. Sum",
        "description": "Print a + b.\n",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": ["2 2\n", "5 -7\n"], "output": ["4\n", "-2\n"]},
        "generated_tests": {"input": ["9 9\n"], "output": ["17\n"]},
        "time_limit": {"seconds": 1, "nanos": 500_000_000},
        "memory_limit_bytes": 256_000_000,
        "input_file": "",
        "output_file": "",
        **changes,
    }


def write(folder, split, *records):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(records)), folder / f"{split}-00000-of-00001.parquet")
    return CodeContests(data_dir=folder)


@pytest.fixture
def problem(tmp_path):
    return write(tmp_path, "test", record()).problems("test")[0]


# ── records ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_official_splits_load_with_public_and_private_tests_and_limits(tmp_path):
    for split, total in (("train", 3), ("valid", 2), ("test", 1)):
        task = write(tmp_path, split, *[record(description=f"{split} {i}") for i in range(total)])
    assert [p.id for p in task.problems("train")] == ["train-0", "train-1", "train-2"]
    assert [p.id for p in task.problems("dev")] == ["dev-0", "dev-1"]
    assert task.problems("dev")[1].prompt == f"valid 1\n\n{INSTRUCTION}"
    (problem,) = task.problems("test")
    assert problem.tests == (("1 2\n", "3\n"), ("2 2\n", "4\n"), ("5 -7\n", "-2\n"))  # none of the generated
    assert (problem.seconds, problem.memory_bytes) == (1.5, 256_000_000)


def test_files_may_lie_in_the_releases_data_folder_and_in_parts(tmp_path):
    (tmp_path / "data").mkdir()
    for part in range(2):
        table = pyarrow.Table.from_pylist([record(description=f"part {part}")])
        pyarrow.parquet.write_table(table, tmp_path / "data" / f"train-0000{part}-of-00002-abc.parquet")
    assert [p.prompt[:6] for p in CodeContests(tmp_path).problems("train")] == ["part 0", "part 1"]


def test_a_missing_part_is_named_and_the_others_are_not_taken_for_the_whole(tmp_path):
    table = pyarrow.Table.from_pylist([record()])
    pyarrow.parquet.write_table(table, tmp_path / "test-00000-of-00002.parquet")
    with pytest.raises(FileNotFoundError, match="1 of the 2 files of test, and not test-00001-of-00002"):
        CodeContests(tmp_path).problems("test")


def test_more_records_than_the_release_has_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has 118 dev records and the official code_contests has 117: .*; give"):
        write(tmp_path, "valid", *[record()] * 118).problems("dev")


def test_problems_that_cannot_be_graded_are_left_out_and_named_in_the_log(tmp_path, caplog):
    nothing = {"input": [], "output": []}
    task = write(
        tmp_path,
        "test",
        record(input_file="input.txt"),
        record(),
        record(output_file="output.txt"),
        record(public_tests=nothing, private_tests=nothing),
        record(description=" \n"),
    )
    with caplog.at_level(logging.INFO):
        assert [p.id for p in task.problems("test")] == ["test-1"]
    assert "without problems [0, 2, 3, 4]" in caplog.text


def test_a_record_without_limits_gets_the_defaults(tmp_path):
    (problem,) = write(tmp_path, "test", record(time_limit=None, memory_limit_bytes=0)).problems("test")
    assert (problem.seconds, problem.memory_bytes) == (2.0, 256_000_000)


def test_the_problems_limits_are_the_runs():
    problem = CodeProblem("t", "1", "", "", (("", "x" * 10**6),), seconds=1.5, memory_bytes=10**9)
    limits = limits_of(problem)
    assert (limits.cpu_seconds, limits.seconds) == (2, 4.0)  # ceil(1.5); 2 * 1.5 + 1
    assert limits.memory_bytes == 10**9 + 64 * 2**20
    assert limits.output_bytes == 2 * 10**6


def test_a_problem_survives_the_way_to_another_process(problem):
    assert pickle.loads(pickle.dumps(problem)) == problem


def test_a_missing_folder_split_or_unknown_split_is_named_with_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="data_dir: no folder .*nowhere.*parquet.*deepmind/code_contests"):
        CodeContests(data_dir=tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="data_dir: .* has no valid split; give a folder with"):
        CodeContests(data_dir=tmp_path).problems("dev")
    with pytest.raises(ValueError, match="train, dev, test"):
        CodeContests(data_dir=tmp_path).problems("valid")


@pytest.mark.parametrize(
    "changes",
    [
        {"public_tests": {"input": ["1"], "output": []}},
        {"public_tests": {"input": ["1"]}},
        {"private_tests": None},
        {"memory_limit_bytes": "much"},
        {"time_limit": "2 s"},
        {"description": None},
        {"public_tests": {"input": "12", "output": "34"}},
        {"public_tests": {"input": [None], "output": ["3"]}},
    ],
)
def test_a_record_in_another_format_is_named(tmp_path, changes):
    task = write(tmp_path, "test", record(**changes))
    with pytest.raises(ValueError, match=r"test-00000.*parquet, row 0 is not in the official format"):
        task.problems("test")


def test_a_truncated_file_or_a_missing_column_is_named(tmp_path):
    task = write(tmp_path, "test", record())
    path = next(tmp_path.glob("*.parquet"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="test-00000.*cannot be read as parquet"):
        task.problems("test")
    incomplete = record()
    del incomplete["private_tests"]
    with pytest.raises(ValueError, match="private_tests"):
        write(tmp_path, "test", incomplete).problems("test")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is not JSON"),
        ("[\n1,\n}", "code_contests.json, line 3 is not JSON"),
        ("{}", "holds a dict instead of a list of records"),
        ('[{"problem": "p"}]', "record 0 has no `problem` and `tests`"),
        ('[{"problem": 1, "tests": {"inputs": [], "outputs": []}}]', "record 0 has no"),
        ('[{"problem": "p", "tests": {"inputs": ["1"], "outputs": []}}]', "record 0 is not in the official format"),
        ('[{"problem": "p", "tests": {"inputs": "12", "outputs": "34"}}]', "record 0 is not in .*`input` of type str"),
        ('[{"problem": "p", "tests": {"inputs": ["1"], "outputs": [null]}}]', "record 0 is .*output None of a test is"),
        ("[]", "data_dir: the test split of code_contests has no problem that can be graded; give the official"),
    ],
)
def test_a_bad_copy_in_json_is_named(tmp_path, text, message):
    (tmp_path / "code_contests.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        CodeContests(tmp_path).problems("test")


def test_a_copy_that_is_not_utf8_is_named_with_its_line(tmp_path):
    (tmp_path / "code_contests.json").write_bytes(b'[\n{"problem": "\xff"}]')
    with pytest.raises(ValueError, match="data_dir: .*code_contests.json, line 2 is not UTF-8 .*; give the official"):
        CodeContests(tmp_path).problems("test")


def hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))


def test_without_a_folder_the_problems_come_from_the_hub(monkeypatch):
    calls = []

    class Rows(list):
        def select_columns(self, columns):
            return [{column: row[column] for column in columns} for row in self]

    hub(monkeypatch, lambda *args, **kwargs: calls.append((args, kwargs)) or Rows([record()]))
    assert len(CodeContests().problems("dev")[0].tests) == 3
    assert calls == [(("deepmind/code_contests",), {"split": "valid"})]


def test_an_unreachable_hub_is_said_with_the_remedy(monkeypatch):
    def offline(*_, **__):
        raise OSError("Name or service not known")

    hub(monkeypatch, offline)
    with pytest.raises(ConnectionError, match="deepmind/code_contests cannot be read .*set data_dir"):
        CodeContests().problems("test")


def test_a_machine_without_a_sandbox_is_warned_about_when_problems_are_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "missing", lambda weak: ("start: no",))
    with pytest.warns(UserWarning, match="completions cannot be graded here.*no full sandbox"):
        problem = write(tmp_path, "test", record()).problems("test")[0]
    with pytest.raises(sandbox.SandboxRefused):
        CodeContests(tmp_path).grade(problem, "```python\npass\n```")


# ── the program in a completion ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("So:\n```python\nprint(1)\n```\nDone.", ("print(1)\n", "python")),
        ("```py\na\n```\nor better\n```python3\nb\n```", ("b\n", "python")),
        ("```cpp\nint main() {}\n```", ("int main() {}\n", "cpp")),
        ("```C++ title\nx\n```", ("x\n", "cpp")),
        ("```python\nprint(1)\n```\nIt prints\n```\n1\n```", ("print(1)\n", "python")),
        ("```\nprint(1)\n```", ("print(1)\n", "python")),
        ("```\n#include <cstdio>\nint main() {}\n```", ("#include <cstdio>\nint main() {}\n", "cpp")),
        ("  ```python\n  x\n  ```  ", ("  x\n", "python")),
        ("```python\ns = '```'\n```", ("s = '```'\n", "python")),
        ("```python\n```", ("", "python")),
        ("```java\nclass A {}\n```", None),
        ("```python\nprint(1)", None),
        ("print(1)", None),
        ("``` ```", None),
        ("", None),
    ],
)
def test_the_last_whole_block_in_a_known_language_is_the_program(completion, expected):
    assert extract(completion) == expected


# ── comparison ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("output", "expected", "match"),
    [
        ("5 2 1", "5 2 1 \n", True),
        ("Yes\nNO", "YES no", True),
        ("1\t2\r\n\v3", "1 2 3", True),
        ("", "\n", True),
        ("1 2", "1 2 3", False),
        ("12", "1 2", False),
        ("2 1", "1 2", False),
        ("0.333333", "0.3333333333", True),
        ("1.00001", "1.0", False),  # 1e-5 apart or just over; the bound is strict
        ("1.000009", "1", True),
        ("100000.1", "100000.2", False),  # absolute, however large
        ("1e3", "1000", True),
        ("+5", "5", True),
        ("007", "7", True),
        ("-0", "0", True),
        ("1_000", "1000", False),
        ("abc", "abd", False),
        ("nan", "nan", True),
        ("nan", "1", False),
        ("inf", "1e999", False),
        ("123456789012345678", "123456789012345679", False),  # equal as doubles
        ("9" * 5000, "8" * 5000, False),
        ("É", "é", False),  # only ASCII letters are lowered
        ("\ud800", "?", True),
    ],
)
def test_outputs_are_compared_token_by_token(output, expected, match):
    assert outputs_match(output, expected) is match
    assert outputs_match(expected, output) is match


@needs_data
def test_the_labelled_cases_are_judged_as_labelled():
    lines = (DATA / "grader_cases.jsonl").read_text("utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if case["benchmark"] == "CodeContests"]
    assert len(cases) == 6
    for case in cases:
        assert outputs_match(case["candidate"], case["gold"]) is case["should_match"], case


# ── grading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def python(program):
    return f"Read both.\n```python\n{program}\n```"


def reward(problem, completion):
    return CodeContests().grade(problem, completion).reward


@needs_sandbox
@pytest.mark.parametrize(
    ("program", "share"),
    [
        ("print(sum(map(int, input().split())))", 1),
        ("a, b = map(int, input().split()); print(abs(a + b))", 2 / 3),
        ("print(4)", 1 / 3),
        ("print(0)", 0),
        ("", 0),
        ("def f(:", 0),
        ("print(sum(map(int, input().split()))); raise SystemExit(1)", 0),  # right, but it fails
        ("a, b = map(int, input().split()); print(a + b); 1 // (b + 7)", 2 / 3),
        ("while True: print('3')", 0),
    ],
)
def test_the_reward_is_the_share_of_tests_passed(problem, program, share):
    assert reward(problem, python(program)) == share


@needs_sandbox
@needs_cpp
def test_a_cpp_program_is_graded_alike_and_one_that_does_not_compile_gets_nothing(problem):
    program = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
    assert reward(problem, f"```cpp\n{program}\n```") == 1
    assert CodeContests().grade(problem, "```cpp\nint main() { return x; }\n```") == Graded(0.0, None)


@needs_sandbox
def test_a_program_over_the_time_limit_fails_that_test(problem):
    slow = python("a, b = map(int, input().split())\nwhile b < 0: pass\nprint(a + b)")
    fast = CodeProblem(**{**vars(problem), "seconds": 0.2})
    assert reward(fast, slow) == 2 / 3


@needs_sandbox
def test_programs_that_do_the_same_vote_together():
    tests = (("1\n", "1.0\n"), ("2\n", "4.0\n"))
    problem = CodeProblem("code_contests", "test-0", "", "", tests)
    votes = {
        name: CodeContests().grade(problem, python(program)).answer
        for name, program in {
            "right": "print(float(input()) ** 2)",
            "right within tolerance": "print(float(input()) ** 2 + 1e-7)",
            "wrong on the second": "print(1)",
            "the same wrong": "print('1')",
            "otherwise wrong": "print(1 if input() == '1' else 5)",
            "crash": "1 / 0",
            "silent": "pass",
        }.items()
    }
    assert votes["right"] == votes["right within tolerance"]
    assert votes["wrong on the second"] == votes["the same wrong"]
    assert votes["crash"] is votes["silent"] is None
    assert len(set(votes.values())) == 4


def test_a_completion_without_a_program_needs_no_sandbox(monkeypatch, problem):
    monkeypatch.setattr(sandbox, "missing", lambda weak: ("start: no",))
    assert CodeContests().grade(problem, "I do not know.") == Graded(0.0, None)


@needs_sandbox
@pytest.mark.parametrize("completion", ["```python\n\ud800\n```", "```python\n\x00\n```", "```cpp\n\x00\ud800\n```"])
def test_no_completion_makes_grading_fail(problem, completion):
    if "cpp" in completion and sandbox.compiler() is None:
        pytest.skip("no g++")
    assert reward(problem, completion) == 0


@needs_sandbox
def test_without_a_compiler_a_cpp_program_gets_nothing_and_ends_no_run(problem, monkeypatch, tmp_path):
    """The completion chooses its language, so it must not end a run."""
    monkeypatch.setattr(sandbox, "compiler", lambda: None)
    assert CodeContests().grade(problem, "```cpp\nint main() {}\n```") == Graded(0.0, None)
    assert reward(problem, python("print(sum(map(int, input().split())))")) == 1
    (tmp_path / "code_contests.json").write_text(
        json.dumps([{"problem": "p", "tests": {"inputs": [""], "outputs": [""]}}])
    )
    with pytest.warns(UserWarning, match=r"C\+\+ programs get 0 here.*no g\+\+ on PATH") as warned:
        CodeContests(tmp_path).problems("test")
    assert sum("sandbox" in str(one.message) for one in warned) == 1


@pytest.mark.parametrize("line", ["```", "```a", "``` ", " ", "```\n```", "````", "```a`", "``` x", "\t```"])
def test_the_program_is_found_in_time_that_grows_with_the_length_alone(line):
    """A pattern that tries each opening fence against the rest would take hours on these texts."""
    extract(f"{line}\n" * 200_000)
    assert extract(f"{line}\n" * 1001 + "\n```\n```python\nprint(1)\n```") is not None


# ── the real file ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def real():
    return CodeContests(DATA / "code_contests").problems("test")


@needs_data
def test_the_real_file_loads_whole(real):
    assert len(real) == 60
    assert sum(len(p.tests) for p in real) == 511
    assert not any("Time Limit" in p.prompt or "Memory Limit" in p.prompt for p in real)
    assert {p.seconds for p in real} == {1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0}
    assert {p.memory_bytes for p in real} == {256_000_000, 512_000_000}


@needs_data
def test_every_expected_output_matches_itself_and_not_the_next_different_one(real):
    for problem in real:
        outputs = [expected for _, expected in problem.tests]
        assert all(outputs_match(expected, expected) for expected in outputs)
        for ours, theirs in zip(outputs, outputs[1:], strict=False):
            assert outputs_match(ours, theirs) is (code_contests.tokens(ours) == code_contests.tokens(theirs))


# Written for this test, for the problem "count the integers divisible by 25 that fit a pattern".
PATTERN = """
import re
s = input()
found = 0
for x in ("0123456789" if "X" in s else "0"):
    t = s.replace("X", x)
    ways = 1 if len(t) > 1 else (1 if t in "0_" else 0)
    if len(t) > 1:
        ways = 0
        for end in ("00", "25", "50", "75"):
            if all(p in ("_", e) for p, e in zip(t[-2:], end)):
                head, n = t[:-2], 1
                first = (head + end)[0] if (head + end)[0] != "_" else None
                if first == "0":
                    continue
                for i, c in enumerate(head):
                    if c == "_":
                        n *= 9 if i == 0 else 10
                ways += n
    found += ways
print(found)
"""


@needs_data
@needs_sandbox
def test_a_right_program_passes_the_tests_of_a_real_problem(real):
    problem = next(p for p in real if "divisible by 25" in p.prompt)
    assert len(problem.tests) > 5
    problem = replace(problem, tests=problem.tests[:8])  # the public tests and a few others: each starts a process
    assert CodeContests().grade(problem, python(PATTERN)).reward == 1
    assert 0 < CodeContests().grade(problem, python("print(1)")).reward < 1
