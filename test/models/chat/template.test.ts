import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import { ChatTemplate, type Message, renderChat } from '../../../src/models/chat/template.js';
import { parseTemplate } from '../../../src/models/chat/syntax.js';
import { openTokenizer } from '../../../src/models/tokenizer/open.js';
import { FIXTURES, readFixture, toIds, type ChatCase, type Chats } from '../python_fixtures.js';

const { conversations, chats, variables, expressions } = readFixture<Chats>('chats.json');

/** Where Python trims the notation of a list, which was never meant, this program refuses. */
const isRefused = (name: string, { messages }: ChatCase): boolean => name === 'llama3' && messages === 10;

describe.each(Object.entries(chats))(
  '%s, as transformers renders it',
  (name, { template: source, tokenizer: kind, cases }) => {
    const tokenizer = openTokenizer(join(FIXTURES, kind));
    const template = new ChatTemplate(source, name, tokenizer.special);
    const render = ({ messages, generation, extra }: ChatCase): Promise<string> =>
      template.render(conversations[messages], { addGenerationPrompt: generation, variables: extra });

    test('text and ids', async () => {
      const taken = cases.filter((each) => each.text !== undefined && !isRefused(name, each));
      const texts = await Promise.all(taken.map(render));
      expect(texts).toEqual(taken.map(({ text }) => text));
      const ids = await Promise.all(texts.map(async (text) => tokenizer.encode(text)));
      expect(ids).toEqual(taken.map((each) => toIds(each.ids ?? '')));
      expect(taken.length).toBeGreaterThan(4);
    });

    test('conversations that Python refuses', async () => {
      for (const each of cases.filter((each) => each.error !== undefined || isRefused(name, each))) {
        await expect(render(each)).rejects.toThrow(DataError);
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

/** Small templates that this program renders otherwise than Python does. */
const differing: Readonly<Record<string, string>> = {
  '{{ 1.0 | tojson }}': '1',
  '{{ lipsum is defined }}': 'False',
  '{{ cycler is defined }}': 'False',
};

test('small templates give the text that jinja2 gives, or are rejected', async () => {
  const outcome = async (source: string): Promise<string | null> => {
    try {
      return await new ChatTemplate(source, 'x', {}).render([user], { addGenerationPrompt: false, variables });
    } catch (error) {
      if (error instanceof DataError) return null;
      throw error;
    }
  };
  const found = await Promise.all(expressions.map(async ({ source }) => [source, await outcome(source)] as const));
  const rendered = found.filter(([, text]) => text !== null);
  const python = new Map(expressions.map(({ source, text }) => [source, text]));
  expect(rendered).toEqual(rendered.map(([source]) => [source, differing[source] ?? python.get(source)]));
  expect(rendered.length).toBeGreaterThan(180);
});

const user: Message = { role: 'user', content: 'hi' };

async function fails(source: string, messages: readonly Message[] = [user]): Promise<DataError> {
  const template = new ChatTemplate(source, 'model/chat_template.jinja', {});
  const error: unknown = await template
    .render(messages, { addGenerationPrompt: true })
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(DataError);
  return error as DataError;
}

describe('a template that fails', () => {
  const refuses =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}";
  const system = [user, { role: 'system', content: 's' }];

  test('names its file and its own words', async () => {
    const error = await fails(refuses, system);
    expect(error.message).toBe('the chat template fails: no system');
    expect(error.where).toBe('model/chat_template.jinja');
    expect(error.next).toMatch(/messages that the template accepts/);
  });

  test('while its caller waits', () => {
    const template = new ChatTemplate(refuses, 'x', {});
    expect(() => template.renderNow(system, { addGenerationPrompt: true })).toThrow(/fails: no system/);
    expect(template.renderNow([user], { addGenerationPrompt: true })).toBe('');
  });

  test.each([
    ["{{ 'a' | rot13 }}", /Unknown StringValue filter: rot13/],
    ["{{ 'a' + 1 }}", /adds StringValue and IntegerValue/],
    ['{{ messages[0].content + messages }}', /adds StringValue and ArrayValue/],
    ['{{ messages }}', /prints a value of type ArrayValue/],
    ['{{ nothing.at.all }}', /undefined/],
    ['{% macro a() %}{{ self.b() }}{{ a() }}{% endmacro %}{{ a() }}', /undefined/],
    ["{{ 'x'.rsplit('y') }}", /not a function/],
  ])('%s', async (source, message) => {
    expect((await fails(source)).message).toMatch(message);
  });

  test('without messages', async () => {
    expect((await fails('x', [])).message).toBe('a conversation has no messages');
  });

  test('to be parsed', () => {
    expect(() => new ChatTemplate('{% if %}', 'x', {})).toThrow(/cannot be parsed/);
    expect(() => parseTemplate('{% if %}')).toThrow();
  });
});

test('the date is the local one', async () => {
  const now = (): Date => new Date(2026, 4, 3, 15, 7, 9);
  const template = new ChatTemplate("{{ strftime_now('%d %b %Y, %A %-d %B, %H:%M:%S %I%p %y%% %F') }}", 'x', {}, now);
  expect(await template.render([user], { addGenerationPrompt: false })).toBe(
    '03 May 2026, Sunday 3 May, 15:07:09 03PM 26% 2026-05-03',
  );
});

describe('a template that would not end', () => {
  const doubled = (items: string, times: number): string =>
    `{% set n = namespace(x=${items}) %}{% for i in range(${times}) %}{% set n.x = n.x + n.x %}{% endfor %}`;
  const nested = `${'{% for i in range(100000) %}'.repeat(3)}{% if [i] == [n.x] %}{% endif %}${'{% endfor %}'.repeat(3)}`;

  test.each([
    [doubled("'ab'", 40), /more than 8388608/],
    [doubled('[1]', 40), /more than 8388608/],
    ['{{ range(1000000000) }}', /range of more than 100000/],
    [
      `${doubled("'abcdefgh'", 19)}{% set n.l = [] %}{% for i in range(4000) %}{% set n.l = n.l + [(n.x ~ i) | upper] %}{% endfor %}`,
      /more than 256 MB/,
    ],
    ['{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}', /not a function|stack/],
  ])('%s is rejected', async (source, message) => {
    expect((await fails(source)).message).toMatch(message);
    expect(
      await new ChatTemplate('{{ messages[0].content }}', 'x', {}).render([user], { addGenerationPrompt: true }),
    ).toBe('hi');
  });

  test.each([
    ['loops', `{% set n = namespace(x=1) %}${nested}`],
    [
      'comparisons',
      `${doubled('[1]', 22)}{% for i in range(100000) %}{% if n.x == n.x or n.x in [n.x] %}{% endif %}{% endfor %}`,
    ],
    [
      'conversions',
      `${doubled('[1]', 22)}{% for i in range(100000) %}{% set y = (n.x | tojson) ~ (n.x | join) %}{% endfor %}`,
    ],
  ])('by %s is ended', async (_, source) => {
    const text = renderChat({ source, names: {}, now: 0, withinMs: 500 });
    await expect(text).rejects.toThrow(/longer than 0.5 seconds|more than (256 MB|8388608 characters)/);
  });
});
