"""
Writes the prompt files of a published judge from a clone of its repository, for the terms of the same names.

    python scripts/judge_prompts.py NAME CLONE FOLDER

NAME is editscore, unified_reward_edit, rational_rewards_edit or pvc_judge (which needs PyYAML). Source files are read, never run.
"""

import ast
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


def pvc_judge(clone):
    import yaml

    path = clone / "src/prompts/assets/vlm/assessment/visual_consistency/pairwise/v1.yaml"
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
    return {"pvc_judge.txt": prompt["system_prompt"] + SYSTEM_END + user}


KNOWN = {known.__name__: known for known in (editscore, unified_reward_edit, rational_rewards_edit, pvc_judge)}


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
