"""The worklist of a result: one spiky feature does not hide what is found in the others."""

from __future__ import annotations

from pathlib import Path

from participant.findings.worklist import aside_sentence, read_worklist


def written(folder: Path, spiky: int, others: int) -> None:
    lines = ["id,feature,observed,expected,z,exceeded_by,values,cause,corrected"]
    lines += [f"s{k},noise,{900 + k},1,{500 + k},1,600,," for k in range(spiky)]
    lines += [f"o{k},age,90,40,6,1,600,," for k in range(others)]
    lines += ["t,noise,10,1,7,1,600,ten times too large,1"]
    (folder / "outliers.csv").write_text("\n".join(lines) + "\n")
    (folder / "samples.csv").write_text("id,p_value,flagged,flagged_entries,largest_z\n")


def test_a_feature_that_makes_most_of_all_flags_comes_last_and_is_named(tmp_path: Path) -> None:
    written(tmp_path, spiky=47, others=3)
    found = read_worklist(tmp_path)
    assert [one.sample for one in found[:4]] == ["t", "o0", "o1", "o2"]  # what has a cause is not set aside
    assert all(one.aside for one in found[4:])
    assert aside_sentence(found).startswith("47 of 51 findings are of noise alone")
    assert 'exclude = ["noise"]' in aside_sentence(found)


def test_short_lists_and_features_with_fewer_flags_stay_as_they_are(tmp_path: Path) -> None:
    for spiky, others in ((12, 3), (25, 20)):
        written(tmp_path, spiky, others)
        found = read_worklist(tmp_path)
        assert not any(one.aside for one in found)
        assert aside_sentence(found) == ""
        assert [abs(one.z) for one in found] == sorted((abs(one.z) for one in found), reverse=True)
