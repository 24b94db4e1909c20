"""Labels as people have them, from the command line: codes, several a text, and rows without one."""

import json
from pathlib import Path

import pytest
from programs import Desk, Program

TEXTS = {"culture": "The novel won a prize", "politics": "Voters went to the polls", "sport": "The coach left the team"}
SETS = [["culture"], ["politics"], ["culture", "sport"], ["politics", "sport"]] * 9
ROWS = [(f"{'. '.join(TEXTS[name] for name in names)} ({i})", names) for i, names in enumerate(SETS)]


def overview(run: Program, *arguments: str | Path) -> tuple[dict, str]:
    """The training part of `check`'s JSON, and what was said on stderr."""
    result = run("check", *arguments, "--json")
    assert result.code == 0, result.out
    return json.loads(result.out)["parts"]["training"], result.err


def write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def test_thirty_intents_are_classes_of_the_test_file_too(tmp_path: Path, run: Program) -> None:
    lines = [f"please help with matter {i % 30} now {i},{i % 30}" for i in range(120)]
    train = write(tmp_path / "train.csv", ["text,intent", *lines])
    test = write(tmp_path / "test.csv", ["text,intent", *(f"again {line}" for line in lines[:25])])
    part, said = overview(run, train, "--test", test)
    assert (part["kind"], len(part["labels"])) == ("single", 30)
    assert "train.csv: the 30 different whole numbers of 'intent' are read as classes." in said
    assert "If they are a quantity, say --kind numeric." in said
    assert "test.csv" not in said
    part, said = overview(run, train, "--kind", "numeric")
    assert (part["kind"], said) == ("numeric", "")


def test_thirty_scores_are_a_quantity_and_it_is_said(tmp_path: Path, run: Program) -> None:
    lines = [f"some matter {i % 30} now {i},{i % 30}" for i in range(120)]
    part, said = overview(run, write(tmp_path / "train.csv", ["text,score", *lines]))
    assert part["kind"] == "numeric"
    assert "'score' are read as a quantity (regression). If they are codes of classes, say --kind single." in said


@pytest.mark.parametrize("shape", ["pandas", "numpy", "json", "hot", "one-hot", "choices"])
def test_several_labels_in_each_shape(shape: str, tmp_path: Path, run: Program) -> None:
    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    names = tuple(TEXTS)
    options: list[str] = []
    path = tmp_path / "train.csv"
    if shape == "one-hot":
        rows = [",".join([text, *(str(int(name in row)) for name in names)]) for text, row in ROWS]
        write(path, ["text,culture,politics,sport", *rows])
        options = ["--label", "culture,politics,sport"]
    elif shape == "hot":
        path = tmp_path / "train.jsonl"
        write(path, [json.dumps({"text": t, "labels": [int(name in row) for name in names]}) for t, row in ROWS])
    else:
        cell = {
            "pandas": str,
            "numpy": lambda row: str(row).replace(",", ""),
            "json": json.dumps,
            "choices": lambda row: row[0] if len(row) == 1 else json.dumps({"choices": row}),
        }[shape]
        write(path, ["text,labels", *(f"{text},{quoted(cell(row))}" for text, row in ROWS)])
    part, said = overview(run, path, *options)
    expected = {"sport": 18, "politics": 18, "culture": 18}
    if shape == "hot":
        expected = {"2": 18, "1": 18, "0": 18}
        assert "numbered from 0. To name them, write a column of 0 and 1 for each" in said
        assert "--label first,second,third." in said
    else:
        assert said == ""
    assert (part["kind"], part["labels"]) == ("multi", expected)


@pytest.fixture
def partly(desk: Desk, tmp_path: Path) -> Path:
    """The desk's 24 labelled reviews, and 30 rows without a label, as a spreadsheet has them."""
    pool = (desk / "pool.txt").read_text().splitlines()[:30]
    return write(tmp_path / "partly.csv", [*(desk / "train.csv").read_text().splitlines(), *(f"{t}," for t in pool)])


def test_check_of_a_partly_labelled_file(partly: Path, run: Program) -> None:
    result = run("check", partly)
    assert result.code == 0
    assert "30 texts without a label, to be used as unlabelled text." in result.out
    strict = run("check", partly, "--strict")
    assert strict.code == 1
    assert strict.out.splitlines()[2].startswith("error") or "1 error" in strict.out


@pytest.mark.slow
def test_finetune_uses_rows_without_a_label_as_unlabelled_text(
    partly: Path, desk: Desk, tmp_path: Path, run: Program
) -> None:
    test = write(tmp_path / "test.csv", [*(desk / "test.csv").read_text().splitlines(), "not yet labelled,"])
    quick = ["--model", desk.lm, "--test", test, "--minutes", "1", "--no-adapt"]
    result = run("finetune", partly, "--out", tmp_path / "out", *quick)
    assert result.code == 0, result.err
    assert "30 texts without a label, to be used as unlabelled text." in result.err
    assert "1 text without a label, to be left out." in result.err
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert {name: part["texts"] for name, part in record["data"].items()} == {"train": 24, "test": 20}
    run("finetune", partly, "--out", tmp_path / "other", *quick, "--strict").mistake("the label is missing (30 texts")
    assert not (tmp_path / "other").exists()
    evaluated = run("evaluate", tmp_path / "out", test, "--json")
    assert json.loads(evaluated.out)["texts"] == 20
    assert "1 of 21 texts have no label and are left out" in evaluated.err


@pytest.mark.slow
def test_two_gaps_do_not_stop_a_recipe(desk: Desk, tmp_path: Path, run: Program) -> None:
    train = write(tmp_path / "train.csv", [*(desk / "train.csv").read_text().splitlines(), "one,", "two,NaN"])
    quick = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--no-baselines"]
    result = run("finetune", train, "--out", tmp_path / "out", *quick)
    assert result.code == 0, result.err
