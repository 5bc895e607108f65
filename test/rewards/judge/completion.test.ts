import { describe, expect, it } from 'vitest';
import { readCompletion, type Reply } from '../../../src/rewards/judge/completion.js';

function reading(message: object, finishReason?: unknown): Reply {
  return readCompletion({ model: 'm', choices: [{ index: 0, finish_reason: finishReason, message }] });
}

const whole = '{"score": [7], "reasoning": "ok"}';

describe('finish reasons', () => {
  it.each(['stop', 'STOP', 'FINISH_REASON_STOP', 'end_turn', 'eos_token', 'COMPLETE'])(
    '%s is a plain stop',
    (reason) => {
      expect(reading({ content: whole }, reason)).toMatchObject({ kind: 'text', cutOff: false });
    },
  );

  it.each([
    'length',
    'MAX_TOKENS',
    'max_output_tokens',
    'model_length',
    'FINISH_REASON_MAX_TOKENS',
    'FinishReason.MAX_TOKENS',
  ])('%s cuts a reply off', (reason) => {
    expect(reading({ content: '1' }, reason)).toMatchObject({ kind: 'text', cutOff: true });
    expect(reading({}, reason)).toMatchObject({ problem: 'truncated', remedy: 'ask_again' });
  });

  it.each([null, undefined])('%s may have cut a reply off', (reason) => {
    expect(reading({ content: '1' }, reason)).toMatchObject({ kind: 'text', cutOff: true });
    expect(reading({ content: null }, reason)).toMatchObject({ problem: 'empty' });
  });

  it.each([
    'content_filter',
    'SAFETY',
    'RECITATION',
    'PROHIBITED_CONTENT',
    'BLOCKLIST',
    'IMAGE_SAFETY',
    'content_filter: RECITATION',
    'refusal',
    'sensitive',
  ])('%s is a refusal, whatever was said', (reason) => {
    expect(reading({ content: null }, reason)).toMatchObject({ problem: 'refused', remedy: 'give_up' });
    expect(reading({ content: whole }, reason)).toMatchObject({ problem: 'refused', remedy: 'give_up' });
  });

  it.each(['abort', 'aborted', 'error', 'network_error', 'MALFORMED_FUNCTION_CALL', 'insufficient_system_resource'])(
    '%s is a failure of the server',
    (reason) => {
      expect(reading({ content: whole }, reason)).toMatchObject({ problem: 'server_error', remedy: 'retry' });
    },
  );

  it.each(['OTHER', 'LANGUAGE', 'repetition', '', 7])('%j is not known, and no plain stop', (reason) => {
    expect(reading({ content: whole }, reason)).toMatchObject({ problem: 'server_error', remedy: 'ask_again' });
  });
});

describe('content', () => {
  const text = (words: string): object => ({ type: 'text', text: words });

  it.each<readonly [string, readonly unknown[]]>([
    ['one part', [text(whole)]],
    ['several parts', [text('{"score": [7], '), text('"reasoning": "ok"}')]],
    ['thoughts before it', [{ type: 'thinking', thinking: [text('maybe {"score": [3]}')] }, text(whole)]],
    ['thoughts of another form', [{ type: 'reasoning', text: '{"score": [3]}' }, text(whole)]],
    ["the name of OpenAI's responses", [{ type: 'output_text', text: whole }]],
  ])('in parts is read: %s', (_name, content) => {
    expect(reading({ content }, 'stop')).toMatchObject({ kind: 'text', text: whole });
  });

  it('in parts without a text is not an answer', () => {
    const content = [{ type: 'thinking', thinking: [text(whole)] }];
    expect(reading({ content }, 'length')).toMatchObject({ problem: 'truncated', thought: true });
    expect(reading({ content }, 'stop')).toMatchObject({ problem: 'empty' });
    expect(reading({ content: [{ type: 'refusal', refusal: 'No.' }] }, 'stop')).toMatchObject({ problem: 'refused' });
    expect(reading({ content: [] }, 'stop')).toMatchObject({ problem: 'empty' });
  });

  it('in place of which a tool is called is named', () => {
    const called = { name: 'json', arguments: whole };
    for (const message of [{ tool_calls: [{ type: 'function', function: called }] }, { function_call: called }]) {
      expect(reading({ content: null, ...message }, 'tool_calls')).toMatchObject({
        problem: 'empty',
        remedy: 'give_up',
        detail: expect.stringContaining('call of the tool "json"') as string,
      });
    }
  });
});
