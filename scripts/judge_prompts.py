"""
Writes the prompt files of a published judge or benchmark from a clone of its repository, for the terms of the same names.

    python scripts/judge_prompts.py NAME CLONE FOLDER

Judges: editscore, unified_reward_edit, rational_rewards_edit, pvc_judge, viescore_published and edit_r1. Benchmarks: gedit, imgedit, rise, kris and gedit_v2. pvc_judge and
gedit_v2 need PyYAML. Source files are read, never run.
"""

import ast
import json
import re
import sys
from pathlib import Path

SYSTEM_END = "\n===\n"


def text_of(node):
    """The text of an expression of strings, with {name} in place of an interpolated name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
        return "{" + node.value.id + "}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    raise ValueError("not a text")


def texts_in(path):
    """The texts that a Python file assigns to names at its top level."""
    found = {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                found[statement.targets[0].id] = text_of(statement.value)
            except ValueError:
                continue
    return found


def editscore(clone):
    texts = texts_in(clone / "editscore" / "vie_prompts.py")
    context = texts["_context_no_delimit_reasoning_first"]
    # The scale of 25, by the same replacement as in editscore/__init__.py.
    consistency, quality = (texts[name].replace("10", "25") for name in ("_prompts_0shot_tie_rule_SC", "_prompts_0shot_rule_PQ"))
    sc = "\n".join([context, texts["_prompts_0shot_two_image_edit_rule"], consistency])
    return {
        "editscore_sc.txt": "{source}{edited}" + sc.replace("<instruction>", "{instruction}"),
        "editscore_pq.txt": "{edited}" + "\n".join([context, quality]),
    }


def unified_reward_edit(clone):
    folder = clone / "UnifiedReward-Edit"
    return {
        "unified_reward_edit_sc.txt": "{source}{edited}"
        + texts_in(folder / "edit_pointwise_instruction_following.py")["problem"],
        "unified_reward_edit_pq.txt": "{edited}" + texts_in(folder / "edit_pointwise_quality.py")["problem"],
    }


def rational_rewards_edit(clone):
    texts = texts_in(clone / "diffusion_rl_training" / "train_flux_kontext_rationalrewards.py")
    request = texts["TASK_RELATED_TEMPLATE"].replace("{request}", "{instruction}")
    user = f"{request}\n\n{texts['COMMON_TASK_GUIDELINE']}"
    for mark in ("{source}", "{edited}"):
        user = user.replace("<image>", mark, 1)
    return {"rational_rewards_edit.txt": texts["SYSTEM_PROMPT"] + SYSTEM_END + user}


def pair_prompt(clone, dimension):
    import yaml

    path = clone / "src/prompts/assets/vlm/assessment" / dimension / "pairwise" / "v1.yaml"
    prompt = yaml.safe_load(path.read_text(encoding="utf-8"))
    marks = {("input_image", None): "{source}", ("edited_images", 0): "{first}", ("edited_images", 1): "{second}"}
    user = ""
    for block in prompt["user_prompt"]:
        if "text" in block:
            # Jinja drops one final line break, and the client puts one between an image and a text.
            text = re.sub(r"\{\{\s*instruction\s*\}\}", "{instruction}", block["text"].removesuffix("\n"))
            user += ("\n" if user.endswith("}") else "") + text
        else:
            user += marks[(block["image"]["source"], block["image"].get("index"))]
    return prompt["system_prompt"] + SYSTEM_END + user


def pvc_judge(clone):
    return {"pvc_judge.txt": pair_prompt(clone, "visual_consistency")}


def gedit_v2(clone):
    dimensions = {"instruction": "instruction_following", "quality": "visual_quality", "consistency": "visual_consistency"}
    return {f"gedit_v2_{name}.txt": pair_prompt(clone, dimension) for name, dimension in dimensions.items()}


def viescore_published(clone):
    texts = texts_in(clone / "viescore" / "vie_prompts.py")
    context = texts["_context_no_delimit"]
    sc = "\n".join([context, texts["_prompts_0shot_two_image_edit_rule"], texts["_prompts_0shot_tie_rule_SC"]])
    return {
        "viescore_published_sc.txt": sc.replace("<instruction>", "{instruction}") + "{source}{edited}",
        "viescore_published_pq.txt": "\n".join([context, texts["_prompts_0shot_rule_PQ"]]) + "{edited}",
    }


def edit_r1(clone):
    text = texts_in(clone / "reward_server" / "prompt_template.py")["SCORE_LOGIT"]
    # Its server leaves the requirements empty if a dataset has none.
    return {"edit_r1.txt": "{source}{edited}" + text.format(prompt="{instruction}", requirement="")}


def gedit(clone):
    texts = texts_in(clone / "GEdit-Bench" / "viescore" / "vie_prompts.py")
    context = texts["_context_no_delimit"]
    sc = "\n".join([context, texts["_prompts_0shot_two_image_edit_rule"], texts["_prompts_0shot_tie_rule_SC"]])
    return {
        "gedit_sc.txt": sc.replace("<instruction>", "{instruction}") + "{source}{edited}",
        "gedit_pq.txt": "\n".join([context, texts["_prompts_0shot_rule_PQ"]]) + "{edited}",
    }


def imgedit(clone):
    texts = json.loads((clone / "Benchmark" / "Basic" / "prompts.json").read_text(encoding="utf-8"))
    return {
        f"imgedit_{kind}.txt": text.replace("<edit_prompt>", "{instruction}") + "{source}{edited}" for kind, text in texts.items()
    }


class Placeholders(dict):
    """Keeps the placeholders of a Python format as they are, and undoubles its braces."""

    def __missing__(self, name):
        return "{" + name + "}"


def formats(texts, names, images):
    """Prompts that their scripts pass to str.format, with the images after each."""
    return {
        f"{name}.txt": texts[source].format_map(Placeholders()) + images.get(name, "{source}{edited}") for name, source in names.items()
    }


def rise(clone):
    names = {
        "consistency": "prompt_consist",
        "reasoning": "prompt_reasoning",
        "reasoning_image": "prompt_reasoning_w_input",
        "quality": "prompt_generation",
        "spatial_consistency": "prompt_spatial_cons",
        "spatial_reasoning": "prompt_spatial_ref",
        "spatial_reasoning_image": "prompt_spatial_ref_w_input",
        "spatial_reference": "prompt_spatial_ref_img",
        "spatial_quality": "prompt_spatial_qual",
        "logical_consistency": "prompt_logical_cons",
        "logical_consistency_answer": "prompt_logical_cons_ans",
        "logical_text": "prompt_logical_txt",
        "logical_image": "prompt_logical_img",
        "logical_image_alone": "prompt_logical_img_wo_q",
    }
    alone = ("reasoning", "quality", "spatial_reasoning", "spatial_quality", "logical_text")
    return formats(
        texts_in(clone / "utils.py"),
        {f"rise_{name}": source for name, source in names.items()},
        {f"rise_{name}": "{edited}" for name in alone},
    )


def kris(clone):
    names = {
        "consistency": "prompt_consist",
        "instruction": "prompt_instruction_following",
        "anomaly": "prompt_abnormal_instruction_following",
        "knowledge": "prompt_dual_evaluation",
        "view": "prompt_view_instruction_following",
        "quality": "prompt_quality",
        "quality_several": "prompt_quality",
        "consistency_several": "prompt_consist_multi",
        "instruction_several": "prompt_instruction_multi",
        "consistency_frames": "prompt_consist_temporal",
        "instruction_frames": "prompt_instruction_temporal",
    }
    edited = "This is the edited image:{edited}"
    pair = "This is the original image:{source}" + edited
    images = {
        "view": pair + "This is the ground truth image:{reference}",
        "quality": edited,
        "quality_several": "This is the image to evaluate:{edited}",
    }
    several = [name for name in names if name.endswith(("_several", "_frames")) and name not in images]
    texts = texts_in(clone / "utils" / "prompts.py")
    # Its script sends this question without formatting it.
    texts["prompt_quality"] = texts["prompt_quality"].replace("{", "{{").replace("}", "}}")
    shown = {**{name: pair for name in names}, **images, **{name: "{sequence}" for name in several}}
    return formats(texts, {f"kris_{name}": source for name, source in names.items()}, {f"kris_{name}": shown[name] for name in names})


KNOWN = {
    known.__name__: known
    for known in (editscore, unified_reward_edit, rational_rewards_edit, pvc_judge, viescore_published, edit_r1, gedit, imgedit, rise, kris, gedit_v2)
}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in KNOWN:
        sys.exit(__doc__.strip())
    _, name, clone, folder = sys.argv
    files = KNOWN[name](Path(clone))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        path = Path(folder) / file
        path.write_text(text, encoding="utf-8", newline="\n")
        print(path)


if __name__ == "__main__":
    main()
