"""Checks of exercises print, and never raise."""

from agpo_core.experiments.exercises import check, claim


def double(x):
    return 2 * x


def printed(attempt, capsys, cases=((1.0,), (3.0,))) -> str:
    check(attempt, double, list(cases))
    return capsys.readouterr().out


def test_a_right_attempt_is_right_in_all_cases(capsys):
    assert printed(lambda x: x + x, capsys) == "Right, in all 2 cases.\n"


def test_a_wrong_attempt_is_shown_beside_what_it_should_give(capsys):
    def square(x):
        return x * x + 1.0

    assert printed(square, capsys, [(1.0,), (3.0,)]) == ("Not yet: square(3.0) gives 10.000, and should give 6.000.\n")


def test_blanks_and_errors_are_not_yet_an_answer(capsys):
    def blank(x):
        return ...

    def broken(x):
        return x / 0

    def words(x):
        return "two"

    def forgotten(x):
        x * 2

    assert printed(blank, capsys) == (
        "Not yet: blank(1.0) returns Ellipsis. Replace the ... by your formula, and return its value.\n"
    )
    assert "forgotten(1.0) returns None" in printed(forgotten, capsys)
    assert "broken(1.0) raises ZeroDivisionError: float division by zero" in printed(broken, capsys)
    assert "words(1.0) gives 'two', which is not a number" in printed(words, capsys)


def test_a_known_mistake_gets_its_hint_and_another_one_none(capsys):
    mistakes = {"You squared x.": lambda x: x**2, "You forgot the factor.": lambda x: x}
    check(lambda x: x, double, [(3.0,)], mistakes)
    assert capsys.readouterr().out == (
        "Not yet: <lambda>(3.0) gives 3.000, and should give 6.000.\nHint: You forgot the factor.\n"
    )
    check(lambda x: x + 1, double, [(3.0,)], mistakes)
    assert "Hint" not in capsys.readouterr().out


def test_a_mistake_without_a_value_in_a_case_is_passed_over(capsys):
    check(lambda x: 1.0, double, [(0.0,)], {"You divided by x.": lambda x: 1 / x, "You forgot x.": lambda x: 1.0})
    assert capsys.readouterr().out.endswith("Hint: You forgot x.\n")


def test_a_list_of_another_length_is_wrong(capsys):
    check(lambda x: [x, x], lambda x: [x], [(1.0,)])
    assert "gives [1.000, 1.000], and should give [1.000]" in capsys.readouterr().out


def test_a_claim_is_printed_with_its_verdict(capsys):
    claim("it rises", True)
    claim("it falls", False)
    assert capsys.readouterr().out == "holds: it rises\nno longer holds with these parameters: it falls\n"
