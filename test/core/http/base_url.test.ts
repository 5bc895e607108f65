import { expect, it } from 'vitest';
import { openAiBaseUrl } from '../../../src/core/http/base_url.js';

it.each([
  // A bare host gets /v1.
  ['http://localhost:4877', 'http://localhost:4877/v1'],
  ['http://localhost:4877/', 'http://localhost:4877/v1'],
  ['https://api.openai.com', 'https://api.openai.com/v1'],
  // Any path is the base.
  ['http://localhost:4877/v1', 'http://localhost:4877/v1'],
  ['http://localhost:4877/v1/', 'http://localhost:4877/v1'],
  ['https://openrouter.ai/api/v1', 'https://openrouter.ai/api/v1'],
  [
    'https://generativelanguage.googleapis.com/v1beta/openai/',
    'https://generativelanguage.googleapis.com/v1beta/openai',
  ],
  ['https://open.bigmodel.cn/api/paas/v4', 'https://open.bigmodel.cn/api/paas/v4'],
  ['https://ark.cn-beijing.volces.com/api/v3', 'https://ark.cn-beijing.volces.com/api/v3'],
  ['https://dashscope.aliyuncs.com/compatible-mode/v1', 'https://dashscope.aliyuncs.com/compatible-mode/v1'],
  ['https://models.github.ai/inference', 'https://models.github.ai/inference'],
  ['http://gateway:4878/run/my_run/v1', 'http://gateway:4878/run/my_run/v1'],
  // The whole address of chat completions.
  ['https://ark.cn-beijing.volces.com/api/v3/chat/completions', 'https://ark.cn-beijing.volces.com/api/v3'],
  ['http://localhost:4877/v1/chat/completions/', 'http://localhost:4877/v1'],
  ['http://localhost:4877/chat/completions', 'http://localhost:4877/v1'],
])('%s is %s', (given, base) => {
  expect(openAiBaseUrl(given)).toBe(base);
});
