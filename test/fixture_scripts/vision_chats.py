"""Makes test/models/fixtures/vision_chats.json: conversations with images and clips as transformers renders them with the chat templates of
vision-language models. The templates are our own. Their marks and steps are those of the families.

    /tmp/torch/bin/python test/fixture_scripts/vision_chats.py [published template ...]

Published templates (.jinja) are rendered too, and their texts go to standard output instead of the fixture.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

OUT = Path(__file__).resolve().parents[1] / "models" / "fixtures" / "vision_chats.json"

QWEN2_5_VL = """{% set images = namespace(count=0) %}{% set clips = namespace(count=0) %}{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system
You look at what is shown.<|im_end|>
{% endif %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}<|im_end|>
{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}{% set images.count = images.count + 1 %}{% if add_vision_id %}Picture {{ images.count }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>{% elif part['type'] == 'video' or 'video' in part %}{% set clips.count = clips.count + 1 %}{% if add_vision_id %}Video {{ clips.count }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

QWEN3_VL = """{%- set images = namespace(count=0) %}
{%- set clips = namespace(count=0) %}
{%- macro show(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
                {%- set images.count = images.count + 1 %}
                {%- if add_vision_id %}Picture {{ images.count }}: {% endif -%}
                <|vision_start|><|image_pad|><|vision_end|>
            {%- elif part.type == 'video' or 'video' in part %}
                {%- set clips.count = clips.count + 1 %}
                {%- if add_vision_id %}Video {{ clips.count }}: {% endif -%}
                <|vision_start|><|video_pad|><|vision_end|>
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set last = namespace(query=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- if last.searching and message.role == 'user' %}
        {%- set last.searching = false %}
        {%- set last.query = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = show(message.content) %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > last.query and (loop.last or thought) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
    {%- else %}
        {{- content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is not defined or enable_thinking %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}
"""

SMOLVLM = """<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}{% if message['content'] is string %}{{ ': ' + message['content'] }}{% else %}{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% elif part['type'] == 'image' %}{{ '<image>' }}{% elif part['type'] == 'video' %}{{ '<video>' }}{% endif %}{% endfor %}{% endif %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""

TEMPLATES = {"qwen2.5-vl": QWEN2_5_VL, "qwen3-vl": QWEN3_VL, "smolvlm": SMOLVLM}


def said(role: str, *parts: str) -> dict:
    """A message whose parts are 'image', 'video' or words."""
    kinds = ("image", "video")
    return dict(role=role, content=[dict(type=p) if p in kinds else dict(type="text", text=p) for p in parts])


THOUGHT = "<think>\n\n first the colour \n</think>\n\nA red circle."
CONVERSATIONS = [
    [dict(role="user", content="What is shown?")],
    [said("user", "What is shown?")],
    [said("user", "image", "What is shown?")],
    [said("user", "What is shown?", "image")],
    [dict(role="system", content="Be brief."), said("user", "image", "Compare ", "image", "with\n", "image", ".")],
    [said("system", "Be brief."), said("user", "video", "What happens?")],
    [said("user", "image", "video", " both \n"), said("assistant", "One moves."), said("user", "image", "And now?")],
    [said("user", "image", "Think."), dict(role="assistant", content=THOUGHT), said("user", "video", "And now?")],
    [said("user", "image", "Think."), dict(role="assistant", content=THOUGHT)],
    [said("user", "image", "Think."), said("assistant", THOUGHT), said("user", "<|im_end|> {{ 1 }} <image>")],
]
EXTRAS = [{}, dict(add_vision_id=True), dict(enable_thinking=False), dict(add_vision_id=True, enable_thinking=True)]


def main() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")), unk_token="<unk>")

    def cases(template: str) -> list[dict]:
        return [
            dict(
                messages=messages,
                generation=generation,
                extra=extra,
                text=tokenizer.apply_chat_template(
                    conversation, chat_template=template, add_generation_prompt=generation, tokenize=False, **extra
                ),
            )
            for messages, conversation in enumerate(CONVERSATIONS)
            for generation in (True, False)
            for extra in EXTRAS
        ]

    published = {path: Path(path).read_text() for path in sys.argv[1:]}
    chats = {name: dict(template=template, cases=cases(template)) for name, template in (published or TEMPLATES).items()}
    text = json.dumps(dict(conversations=CONVERSATIONS, chats=chats), ensure_ascii=False, indent=0) + "\n"
    if published:
        print(text)
    else:
        OUT.write_text(text)


main()
