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

# A system message goes before the first turn of the user, and the assistant is called "model".
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = (messages[0]['content'] if messages[0]['content'] is string else messages[0]['content'][0]['text']) + '\n\n' -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Turns must alternate') }}
    {%- endif -%}
    {{ '<start_of_turn>' ~ ('model' if message['role'] == 'assistant' else message['role']) ~ '\n' ~ (first if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for part in message['content'] -%}
            {%- if part['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif part['type'] == 'text' -%}
                {{ part['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception('Unknown content') }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\n' }}
{%- endif -%}
"""

# Without a system message there is one with the date.
MISTRAL3 = """{%- set default = 'You are brief. Today is ' ~ (today | default('unknown')) ~ '.' -%}
{{- bos_token }}
{%- if messages and messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set system = messages[0]['content'] -%}
    {%- else -%}{%- set system = messages[0]['content'] | map(attribute='text') | join('') -%}{%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set system = default -%}{%- set turns = messages -%}
{%- endif -%}
{{- '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}
{%- for message in turns -%}
    {%- if message['role'] == 'user' -%}
        {{- '[INST]' }}
        {%- if message['content'] is string -%}
            {{- message['content'] }}
        {%- else -%}
            {%- set parts = message['content'] | sort(attribute='type') -%}
            {%- for part in parts -%}
                {%- if part['type'] == 'text' -%}{{- part['text'] }}{%- elif part['type'] in ['image', 'image_url'] -%}{{- '[IMG]' }}{%- endif -%}
            {%- endfor -%}
        {%- endif -%}
        {{- '[/INST]' }}
    {%- elif message['role'] == 'assistant' -%}
        {%- if message['content'] is string -%}{{- message['content'] + eos_token }}{%- else -%}{{- message['content'][0]['text'] + eos_token }}{%- endif -%}
    {%- else -%}
        {{- raise_exception('Only user, assistant and system roles') }}
    {%- endif -%}
{%- endfor -%}
"""

# Words alone, as of Phi-4 and OLMo 3.
WORDS = """{%- macro words(content) -%}{%- if content is string -%}{{ content }}{%- else -%}{%- for part in content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}{%- endif -%}{%- endmacro -%}
"""
PHI4 = WORDS + """{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '<|im_sep|>' + words(message['content']) + '<|im_end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant<|im_sep|>' }}{%- endif -%}"""
OLMO3 = WORDS + """{%- set has_system = messages | selectattr('role', 'equalto', 'system') | list | length > 0 -%}
{%- if not has_system -%}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{%- endif -%}
{%- for message in messages -%}
    {{ '<|im_start|>' + message['role'] + '\n' + words(message['content']) }}
    {%- if message['role'] == 'assistant' and loop.last -%}{{ eos_token }}{%- else -%}{{ '<|im_end|>\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' + ('<think>' if enable_thinking is not defined or enable_thinking else '') }}{%- endif -%}"""

TEMPLATES = {
    "qwen2.5-vl": QWEN2_5_VL,
    "qwen3-vl": QWEN3_VL,
    "smolvlm": SMOLVLM,
    "gemma3": GEMMA3,
    "mistral3": MISTRAL3,
    "phi4": PHI4,
    "olmo3": OLMO3,
}


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
    words = Tokenizer(WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>")

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
