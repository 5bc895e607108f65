import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import { ChatTemplate, type Message } from '../../../src/models/chat/template.js';
import { Evaluation, Scope } from '../../../src/models/chat/jinja/evaluate.js';
import { globals } from '../../../src/models/chat/jinja/globals.js';
import { parseTemplate } from '../../../src/models/chat/jinja/syntax.js';
import { openTokenizer } from '../../../src/models/tokenizer/open.js';
import { FIXTURES, readFixture, toIds, type ChatCase, type Chats } from '../python_fixtures.js';

const { conversations, chats, variables, expressions } = readFixture<Chats>('chats.json');

describe.each(Object.entries(chats))(
  '%s, as transformers renders it',
  (name, { template: source, tokenizer: kind, cases }) => {
    const tokenizer = openTokenizer(join(FIXTURES, kind));
    const template = new ChatTemplate(source, name, tokenizer.special);
    const render = ({ messages, generation, extra }: ChatCase): string =>
      template.render(conversations[messages], { addGenerationPrompt: generation, variables: extra });

    test('text and ids', async () => {
      const taken = cases.filter(({ text }) => text !== undefined);
      const texts = taken.map(render);
      expect(texts).toEqual(taken.map(({ text }) => text));
      const ids = await Promise.all(texts.map(async (text) => tokenizer.encode(text)));
      expect(ids).toEqual(taken.map((each) => toIds(each.ids ?? '')));
      expect(taken.length).toBeGreaterThan(4);
    });

    test('what Python refuses', () => {
      for (const each of cases.filter(({ error }) => error !== undefined)) {
        expect(() => render(each)).toThrow(DataError);
      }
    });
  },
);

test('the fixtures hold ten templates, and refusals', () => {
  expect(Object.keys(chats)).toHaveLength(10);
  expect(
    Object.values(chats).flatMap(({ cases }) => cases.filter(({ error }) => error !== undefined)).length,
  ).toBeGreaterThan(9);
});

/** What Python renders and this program refuses. */
const notCovered: ReadonlySet<string> = new Set([
  '{{ 1e20 }}',
  '{{ (1,) }}',
  '{{ 1e22|tojson }}',
  "{{ '%s-%d' % ('a', 3) }}",
  "{{ '%s' | format('a') }}",
  "{{ '{}-{}'.format(1,2) }}",
  "{{ 'a1'.isdigit() }}",
  "{{ 'abc'.index('b') }}",
  '{% raw %}{{ x }}{% endraw %}',
  "{{ '&'|e }}",
  '{{ lipsum is defined }}',
  '{{ cycler is defined }}',
  "{{ 'abc'|batch(2)|list }}",
  '{{ [1,2,3]|sum }}',
  '{{ [1,2]|max }}',
  "{{ 'Hello' | wordcount }}",
  '{{ 3.14159|round(2) }}',
  '   {%+ if true %}a{% endif %}\n{% if true +%}\nb{% endif %}',
  '{{ 9 is divisibleby 3 }}',
  "{{ 'a' is in ['a'] }}",
  '{{ u.title() }}',
  "{{ 'abc'.partition('b') }}",
  "{{ 'abc'.zfill(5) }}",
  "{{ 'A'.isupper() }}",
  '{{ l.count(1) }}',
]);

describe('the language, as jinja2 has it', () => {
  const outcome = (source: string): string => {
    try {
      const template = new ChatTemplate(source, 'x', {});
      return template.render([user], { addGenerationPrompt: false, variables });
    } catch (error) {
      if (error instanceof DataError) return 'refused';
      throw error;
    }
  };

  test('each template gives the same text, and fails where Python fails', () => {
    const covered = expressions.filter(({ source }) => !notCovered.has(source));
    const found = covered.map(({ source }) => [source, outcome(source)]);
    expect(found).toEqual(covered.map(({ source, text }) => [source, text ?? 'refused']));
  });

  test('what is not covered here is refused', () => {
    const found = expressions.filter(({ source }) => notCovered.has(source));
    expect(found.map(({ source }) => [source, outcome(source)])).toEqual(
      found.map(({ source }) => [source, 'refused']),
    );
    expect(found).toHaveLength(notCovered.size);
  });
});

const user: Message = { role: 'user', content: 'hi' };

function fails(source: string, messages: readonly Message[] = [user]): DataError {
  try {
    new ChatTemplate(source, 'model/chat_template.jinja', {}).render(messages, { addGenerationPrompt: true });
  } catch (error) {
    if (error instanceof DataError) return error;
    throw error;
  }
  throw new Error('it did not fail');
}

describe('a template that fails', () => {
  test('says which template, at which message, and why', () => {
    const source =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}";
    const error = fails(source, [user, { role: 'system', content: 's' }]);
    expect(error.message).toBe('the chat template fails at message 2 (system): no system');
    expect(error.where).toBe('model/chat_template.jinja');
    expect(error.next).toMatch(/messages that the template takes/);
  });

  test('outside the messages', () => {
    expect(fails("{{ raise_exception('never') }}").message).toBe('the chat template fails: never');
    expect(fails("{{ 'a' | rot13 }}").message).toMatch(/the filter 'rot13' is not covered; covered: abs, /);
    expect(fails("{{ 'a' + 1 }}").message).toMatch(/unsupported operand type\(s\) for \+: 'str' and 'int'/);
    expect(fails('{{ nothing.at.all }}').message).toMatch(/'nothing' is undefined/);
    expect(fails('x', []).message).toBe('a conversation has no messages');
  });

  test('because it would not end', () => {
    const loops = '{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}';
    expect(fails(loops).message).toBe('the chat template fails: its loops take more than 1000000 turns');
    expect(fails('{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}').message).toMatch(
      /^the chat template fails: .*stack/,
    );
    const doubled = "{% set n = namespace(x='ab') %}{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}";
    expect(fails(doubled).message).toMatch(/^the chat template fails: it makes a value of more than 8388608 letters/);
  });
});

test('the date is the local one', () => {
  const now = (): Date => new Date(2026, 4, 3, 15, 7, 9);
  const template = new ChatTemplate("{{ strftime_now('%d %b %Y, %A %-d %B, %H:%M:%S %I%p %y%% %F') }}", 'x', {}, now);
  expect(template.render([user], { addGenerationPrompt: false })).toBe(
    '03 May 2026, Sunday 3 May, 15:07:09 03PM 26% 2026-05-03',
  );
});

describe('a template that would not end', () => {
  const render = (source: string): string =>
    new ChatTemplate(source, 'here', {}).render([{ role: 'user', content: 'x' }], { addGenerationPrompt: false });
  const rounds = '{% for i in range(1000) %}{% for j in range(900) %}';
  const ends = '{% endfor %}{% endfor %}';

  test.each([
    ["{{ 'ab' * 100000000 }}", 'makes a value of more than 8388608 letters'],
    ['{{ [1, 2] * 100000000 }}', 'makes a value of more than 8388608 letters'],
    [
      "{% set ns = namespace(t='abcd') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
      'makes a value',
    ],
    ["{{ 'x' | indent(1000000000) }}", 'makes a value of more than'],
    ["{{ ('a' * 3000) | replace('a', 'b' * 3000) }}", 'makes a value of more than'],
    ["{% for i in range(20) %}{{ 'x' * 4000000 }}{% endfor %}", 'writes more than 64 MiB'],
  ])('%s is refused', (source, message) => {
    expect(() => render(source)).toThrow(DataError);
    expect(() => render(source)).toThrow(`the chat template fails: it ${message}`);
  });

  test('is ended after ten seconds', () => {
    let now = 0;
    const evaluation = new Evaluation(
      () => undefined,
      () => (now += 100),
    );
    const body = parseTemplate(`${rounds}{{ i + j }}${ends}`);
    expect(() => evaluation.render(body, new Scope(globals(() => new Date())))).toThrow(
      'it takes longer than 10 seconds',
    );
    expect(now).toBeLessThan(11_000);
  });
});
