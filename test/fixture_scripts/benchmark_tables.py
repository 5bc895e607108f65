"""
Replies to the questions of benchmarks, and the numbers that the published scripts compute from them.

    python test/fixture_scripts/benchmark_tables.py CLONES FOLDER

CLONES contains clones of stepfun-ai/Step1X-Edit, PKU-YuanGroup/ImgEdit, PhoenixZ810/RISEBench and ZhangqiJiang07/GEditBench_v2 under their
names. Needs numpy, pandas, scipy, xlsxwriter, requests and tqdm.
"""

import importlib.util
import json
import pickle
import random
import sys
import tempfile
import types
from pathlib import Path


def load(path, name):
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    sys.path.pop(0)
    return module


def gedit(clones, draw):
    import pandas as pd

    megfile = types.ModuleType("megfile")
    megfile.smart_open = open
    sys.modules["megfile"] = megfile
    script = load(clones / "Step1X-Edit/GEdit-Bench/calculate_statistics.py", "gedit_statistics")
    edits = []
    for language in ("en", "cn"):
        for i, group in enumerate(script.GROUPS * 3):
            sc, pq = ([draw.randint(0, 10), draw.randint(0, 10)] for _ in range(2))
            edits.append(
                {
                    "row": {
                        "key": f"{language}{i}", "task_type": group, "language": language, "source": "a.png", "instruction": "b",
                        "intersection": i < 11 or draw.random() < 0.5,
                    },
                    "replies": {
                        "gedit_sc": json.dumps({"score": sc, "reasoning": "x"}),
                        "gedit_pq": "```json\n" + json.dumps({"reasoning": "x", "score": pq}) + "\n```",
                    },
                    "minima": [min(sc), min(pq)],
                }
            )
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        for group in script.GROUPS:
            rows = [
                {
                    "source_image": "a", "edited_image": "b", "instruction": "c",
                    "sementics_score": one["minima"][0], "quality_score": one["minima"][1],
                    "intersection_exist": one["row"]["intersection"], "instruction_language": one["row"]["language"],
                }
                for one in edits
                if one["row"]["task_type"] == group
            ]
            pd.DataFrame(rows).to_csv(f"{folder}/m_{group}_gpt_score.csv", index=False)
        for language in ("en", "cn"):
            found = [dict(one["m"]) for one in script.analyze_scores(folder, ["m"], language)]
            averages = ("avg_semantics", "avg_quality", "avg_overall")
            for suffix, three in (("", found[:3]), (", intersection", found[3:])):
                lines = {group: [one[group] for one in three] for group in script.GROUPS}
                lines["mean of groups"] = [one[name] for one, name in zip(three, averages)]
                tables[language + suffix] = {name: [float(value) for value in values] for name, values in lines.items()}
    for one in edits:
        del one["minima"]
    return {"edits": edits, "tables": tables}


def imgedit(clones, draw):
    folder = clones / "ImgEdit/Benchmark/Basic"
    step1 = load(folder / "step1_get_avgscore.py", "imgedit_step1")
    step2 = load(folder / "step2_typescore.py", "imgedit_step2")
    names = ["replace", "add", "adjust", "remove", "style", "action", "extract", "background", "compose"]
    edits, meta, replies = [], {}, {}
    for i in range(90):
        key, kind = str(i), names[i % 9]
        scores = [draw.randint(1, 5) for _ in range(3)]
        reply = f"Brief reasoning: It is fine.\nPrompt Compliance: {scores[0]}\nVisual Seamlessness: {scores[1]}\nPhysical & Detail Fidelity: {scores[2]}"
        edits.append({"row": {"key": key, "task_type": kind, "source": "a.png", "instruction": "b"}, "replies": {"imgedit": reply}})
        meta[key] = {"edit_type": kind}
        replies[key] = reply
    table = step2.compute_edit_type_averages(step1.compute_averages(replies), meta)
    return {"edits": edits, "tables": {"score": {name: [value] for name, value in table.items()}}}


RISE_CATEGORIES = ["temporal_reasoning", "causal_reasoning", "spatial_reasoning", "logical_reasoning"]


def rise(clones, draw, free):
    script = load(clones / "RISEBench/gpt_eval.py", "rise_script")
    script.NumpyEncoder = None
    subtasks = dict(zip(RISE_CATEGORIES, ("Life Progression", "State Transition", "Object Arrangement", "Puzzle Solving")))
    edits, data, results = [], [], {}
    for i in range(48):
        category = RISE_CATEGORIES[i % 4]
        logical = category == "logical_reasoning"
        grade = lambda: draw.randint(0, 1) if logical else draw.choice([1, 2, 3, 4, 5, 5, 5])
        key = f"{category}_{i}"
        is_free = free and category == "spatial_reasoning" and i % 3 == 0
        form = draw.choice(["**Final Score:** **{}**", "Final Score: {}", "**Final Score**: **{}**"])
        replies = {name: "I see.\n" + form.format(grade()) for name in ("consistency", "reasoning", "quality")}
        judges = {"judge1": None if is_free else replies["consistency"], "judge2": replies["reasoning"]}
        if not logical:
            judges["judge3"] = replies["quality"]
        results[key] = judges
        item = {"index": key, "category": category, "instruction": "a", "image": "b.png", "reference": "c", "subtask": subtasks[category]}
        # As in its data, the other edits lack the column.
        if is_free:
            item["consistency_free"] = True
        data.append(item)
        row = {"key": key, "task_type": category, "source": "b.png", "instruction": "a", "reference": "c", "subtask": subtasks[category]}
        if is_free:
            row["consistency_free"] = True
        names = ([] if is_free else ["consistency"]) + ["reasoning"] + ([] if logical else ["quality"])
        edits.append({"row": row, "replies": {f"rise_{name}": replies[name] for name in names}})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        (out / "data.json").write_text(json.dumps(data))
        (out / "m").mkdir()
        (out / "m" / "m.pkl").write_bytes(pickle.dumps(results))
        sys.argv = ["gpt_eval.py", "--data", str(out / "data.json"), "--output", str(out / "m")]
        # The script makes a folder `outputs` where it runs.
        import os

        here = os.getcwd()
        os.chdir(folder)
        script.main()
        os.chdir(here)
        import pandas as pd

        numbers = {line["-"]: line for line in pd.read_csv(out / "m" / "m_judge.csv").to_dict("records")}
    number = lambda value: None if value != value else float(value)
    tables = {}
    for name, prefix in (("overall", "Overall"), *((one, one.split("_")[0].capitalize()) for one in RISE_CATEGORIES)):
        score = numbers[prefix]
        consistency = "ApprConsistency" if prefix == "Overall" else "Consistency"
        plausibility = "VisualPlausibility_total" if prefix == "Overall" else "Quality"
        parts = [numbers.get(f"{prefix}_{part}", {"Score-Origin": float("nan")})["Score-Origin"] for part in ("Reasoning", consistency, plausibility)]
        tables[name] = [number(value) for value in (*parts, score["Score-Origin"], score["Score-Percentage"], score["Accuracy"])]
    return {"edits": edits, "tables": {"by category": tables}}


def gedit_v2(clones, draw):
    import numpy as np

    script = load(clones / "GEditBench_v2/src/common_utils/elo_score.py", "elo_score")
    opponents, own = ["BAGEL", "OmniGen2", "Qwen_Image_Edit"], "this model"
    strength = {own: 0.4, "BAGEL": -0.5, "OmniGen2": 0.0, "Qwen_Image_Edit": 0.9}

    def winner(first, second, dimension):
        weights = [np.exp(strength[first]), np.exp(strength[second]), 0.0 if dimension == "quality" else 0.5]
        return draw.choices(["Image A", "Image B", "Tie"], weights)[0]

    dimensions = ["instruction", "quality", "consistency"]
    edits, matches = [], {dimension: [] for dimension in dimensions}
    published = {dimension: [] for dimension in dimensions}
    for i in range(12):
        key = f"{['color_alter', 'subject_add'][i % 2]}_{i:06d}"
        row = {"key": key, "task_type": key.rsplit("_", 1)[0], "source": "a.png", "instruction": "b"}
        winners = {}
        for opponent in opponents:
            for dimension in dimensions:
                found = winner(own, opponent, dimension)
                winners[f"{dimension}_{opponent}"] = found
                matches[dimension].append({"key": f"{key}_pair_{own}_vs_{opponent}", "results": {"winner": found}})
        edits.append({"row": row, "winners": winners})
    for i in range(30):
        first, second = draw.sample(opponents, 2)
        for dimension in dimensions[: 2 + i % 2]:
            line = {"key": f"color_alter_{i:06d}_pair_{first}_vs_{second}", "results": {"winner": winner(first, second, dimension)}}
            published[dimension].append(line)
            matches[dimension].append(line)
    models = sorted([own, *opponents])
    index = {model: i for i, model in enumerate(models)}
    stats = [script._build_dimension_data(matches[one], index, one).aggregated for one in dimensions]
    theta, _ = script._fit_joint_paired_comparison_model(
        stats, num_models=len(models), alpha=1.0, dimension_weights=script._build_dimension_weights(stats, "balanced")
    )
    elo = 1000 + theta * 400 / np.log(10)
    return {"edits": edits, "published": published, "tables": {"rating": {model: [float(one)] for model, one in zip(models, elo)}}}


def main():
    clones, out = map(Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    made = {
        "gedit": gedit(clones, random.Random(1)),
        "imgedit": imgedit(clones, random.Random(2)),
        "rise": rise(clones, random.Random(3), False),
        "rise_free": rise(clones, random.Random(4), True),
        "gedit_v2": gedit_v2(clones, random.Random(5)),
    }
    for name, value in made.items():
        (out / f"{name}.json").write_text(json.dumps(value) + "\n")


if __name__ == "__main__":
    main()
