/**
 * What servers of each kind really send, as far as a judge's client meets it: their listings, their error bodies, how they show that a
 * model thinks. The places name where each form was read.
 */
import type { Behaviour } from './stub_judge.js';

/** A status and a body. */
export type Sent = readonly [status: number, body: unknown, headers?: Readonly<Record<string, string>>];

export interface ServerKind {
  readonly name: string;
  readonly model: string;
  readonly listing: unknown;
  /** The context length that its listing tells. */
  readonly maxModelLen: number | null;
  /** Whether its listing is there without a key. */
  readonly openListing: boolean;
  readonly wrongKey: Sent;
  /** To a model that it does not have; null where it answers whatever it is called. */
  readonly wrongModel: ((model: string) => Sent) | null;
  readonly overflows: readonly Sent[];
  /** To a field that it does not take. */
  readonly refuses: (field: string, value: unknown) => Sent;
  readonly rateLimited: Sent;
  readonly overloaded: Sent;
  readonly filtered: readonly Sent[];
  /** A reply that was spent on thinking. */
  readonly thinking: readonly Sent[];
  /** The other name that its model answers to. */
  readonly alias: string;
}

interface Choice {
  readonly message: Readonly<Record<string, unknown>>;
  readonly finish_reason: string;
}

export function completed(model: string, { message, finish_reason }: Choice, usage: object = {}): Sent {
  const choices = [{ index: 0, message: { role: 'assistant', ...message }, logprobs: null, finish_reason }];
  return [200, { id: 'chatcmpl-1', object: 'chat.completion', created: 0, model, choices, usage }];
}

export function behaviourOf([status, body, headers = {}]: Sent): Behaviour {
  return typeof body === 'string'
    ? { kind: 'raw', status, contentType: 'text/html', body, headers }
    : { kind: 'json', status, body, headers };
}

const thoughts = 'First I compare the two squares. ```{"score": [1, 1]}``` would be';
const nginx = '<html><head><title>503 Service Temporarily Unavailable</title></head></html>';
const refusing = { message: { content: "I'm sorry, but I can't help with that." }, finish_reason: 'stop' };

const vllmModel = 'Qwen/Qwen2.5-VL-72B-Instruct';
const vllmError = (status: number, type: string, message: string, param: string | null = null): Sent => [
  status,
  { error: { message, type, param, code: status } },
];
/** Until 2025 its errors had no `error` around them. */
const flatError = (status: number, message: string): Sent => [
  status,
  { object: 'error', message, type: 'BadRequestError', param: null, code: status },
];

const vllm: ServerKind = {
  name: 'vLLM',
  model: vllmModel,
  listing: {
    object: 'list',
    data: [
      {
        id: vllmModel,
        object: 'model',
        created: 0,
        owned_by: 'vllm',
        root: '/models/72b',
        parent: null,
        max_model_len: 8192,
      },
    ],
  },
  maxModelLen: 8192,
  openListing: false,
  wrongKey: [401, { error: 'Unauthorized' }],
  wrongModel: (model) => vllmError(404, 'NotFoundError', `The model \`${model}\` does not exist.`, 'model'),
  overflows: [
    // vllm-project/vllm#20409
    flatError(
      400,
      "This model's maximum context length is 4096 tokens. However, you requested 5180 tokens (3780 in the messages, 1400 in the completion). Please reduce the length of the messages or completion. None",
    ),
    vllmError(
      400,
      'BadRequestError',
      'The decoder prompt (length 5180) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.',
    ),
    // 0.32
    vllmError(400, 'BadRequestError', "Input length (5027) exceeds model's maximum context length (4096)."),
    vllmError(
      400,
      'BadRequestError',
      'max_completion_tokens=600 cannot be greater than max_model_len=512. Please request fewer output tokens.',
    ),
    // vllm-project/vllm#4667
    flatError(400, 'max_tokens must be at least 1, got -186.'),
  ],
  // Up to 0.6.4 it took no field that it did not know: vllm-project/vllm#10078
  refuses: (field, value) =>
    flatError(
      400,
      `[{'type': 'extra_forbidden', 'loc': ('body', '${field}'), 'msg': 'Extra inputs are not permitted', 'input': ${JSON.stringify(value)}}]`,
    ),
  // It has no such limit: this is nginx before it.
  rateLimited: [429, '<html><head><title>429 Too Many Requests</title></head></html>', { 'retry-after': '7' }],
  overloaded: [503, nginx],
  filtered: [completed(vllmModel, refusing)],
  thinking: [
    completed(vllmModel, { message: { content: null, reasoning: thoughts }, finish_reason: 'length' }),
    completed(vllmModel, { message: { content: null, reasoning_content: thoughts }, finish_reason: 'length' }),
    // Without a reasoning parser.
    completed(vllmModel, { message: { content: `<think>${thoughts}` }, finish_reason: 'length' }),
  ],
  // --served-model-name with several names: it answers by the first.
  alias: 'judge-72b',
};

const sglangModel = 'Qwen/Qwen2.5-VL-7B-Instruct';

const sglang: ServerKind = {
  name: 'SGLang',
  model: sglangModel,
  listing: {
    object: 'list',
    data: [
      {
        id: sglangModel,
        object: 'model',
        created: 0,
        owned_by: 'sglang',
        root: sglangModel,
        parent: null,
        max_model_len: 32768,
      },
    ],
  },
  maxModelLen: 32768,
  openListing: false,
  // sgl-project/sglang#25127
  wrongKey: [401, { error: 'Unauthorized' }],
  wrongModel: null,
  overflows: [
    // QwenLM/Qwen3#1321
    flatError(400, "The input (61709 tokens) is longer than the model's context length (40960 tokens)."),
    // sgl-project/sglang, tokenizer_manager.py
    flatError(
      400,
      "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5180 tokens: 3780 tokens from the input messages and 1400 tokens for the completion.",
    ),
  ],
  // It takes all of them and ignores what it does not know; a stricter front before it refuses as pydantic does, in Mistral's form
  // (editor-code-assistant/eca#231).
  refuses: (field, value) => [
    422,
    {
      object: 'error',
      message: {
        detail: [
          { type: 'extra_forbidden', loc: ['body', field], msg: 'Extra inputs are not permitted', input: value },
        ],
      },
      type: 'invalid_request_error',
      param: null,
      code: null,
    },
  ],
  rateLimited: [429, 'Too Many Requests', { 'retry-after': '7' }],
  // sgl-project/sglang, scheduler.py; --max-queued-requests
  overloaded: [503, { object: 'error', message: 'The request queue is full.', type: 'SERVICE_UNAVAILABLE', code: 503 }],
  filtered: [completed(sglangModel, refusing)],
  thinking: [
    completed(sglangModel, {
      message: { content: null, reasoning_content: thoughts, tool_calls: null },
      finish_reason: 'length',
    }),
    completed(sglangModel, {
      message: { content: '', reasoning_content: thoughts, tool_calls: null },
      finish_reason: 'length',
    }),
  ],
  alias: 'default',
};

const llamaModel = 'Qwen2.5-VL-7B-Instruct-Q8_0.gguf';
const llamaError = (code: number, type: string, message: string, more: object = {}): Sent => [
  code,
  { error: { code, message, type, ...more } },
];

const llamaCpp: ServerKind = {
  name: 'llama.cpp',
  model: llamaModel,
  listing: {
    models: [{ name: llamaModel, model: llamaModel, type: 'model', capabilities: ['completion', 'multimodal'] }],
    object: 'list',
    data: [
      {
        id: llamaModel,
        object: 'model',
        created: 0,
        owned_by: 'llamacpp',
        meta: { n_ctx_train: 128000, n_params: 7615616512 },
      },
    ],
  },
  maxModelLen: null,
  // ggml-org/llama.cpp, tools/server: health and models are public whatever --api-key says.
  openListing: true,
  wrongKey: llamaError(401, 'authentication_error', 'Invalid API Key'),
  wrongModel: null,
  overflows: [
    // ggml-org/llama.cpp#15780, with 500 at first
    llamaError(
      500,
      'exceed_context_size_error',
      'the request exceeds the available context size. try increasing the context size or enable context shift',
      { n_prompt_tokens: 5180, n_ctx: 4096 },
    ),
    llamaError(
      400,
      'exceed_context_size_error',
      'request (5180 tokens) exceeds the available context size (4096 tokens), try increasing it',
      { n_prompt_tokens: 5180, n_ctx: 4096 },
    ),
  ],
  refuses: (field) =>
    field === 'response_format'
      ? llamaError(
          400,
          'invalid_request_error',
          'response_format type must be one of "text" or "json_object", but got: json_schema',
        )
      : llamaError(400, 'invalid_request_error', `Unsupported param: ${field}`),
  rateLimited: [429, 'Too Many Requests', { 'retry-after': '7' }],
  overloaded: llamaError(503, 'unavailable_error', 'Loading model'),
  filtered: [completed(llamaModel, refusing)],
  thinking: [
    completed(llamaModel, { message: { content: '', reasoning_content: thoughts }, finish_reason: 'length' }),
    // --reasoning-format none
    completed(llamaModel, { message: { content: `<think>\n${thoughts}` }, finish_reason: 'length' }),
  ],
  alias: 'qwen2.5-vl',
};

const hostedModel = 'gpt-5-mini';
const hostedError = (status: number, message: string, code: string | null, param: string | null = null): Sent => [
  status,
  { error: { message, type: 'invalid_request_error', param, code } },
];
const unsupportedValues: ReadonlySet<string> = new Set(['temperature', 'top_p', 'n']);

const hosted: ServerKind = {
  name: 'a hosted API',
  model: hostedModel,
  listing: { object: 'list', data: [{ id: hostedModel, object: 'model', created: 0, owned_by: 'system' }] },
  maxModelLen: null,
  openListing: false,
  wrongKey: hostedError(
    401,
    'Incorrect API key provided: sk-wrong. You can find your API key at https://example.org.',
    'invalid_api_key',
  ),
  wrongModel: (model) =>
    hostedError(404, `The model \`${model}\` does not exist or you do not have access to it.`, 'model_not_found'),
  overflows: [
    // bytedance/deer-flow#310
    hostedError(
      400,
      "This model's maximum context length is 128000 tokens. However, your messages resulted in 202868 tokens. Please reduce the length of the messages.",
      'context_length_exceeded',
      'messages',
    ),
    [413, '<html><head><title>413 Request Entity Too Large</title></head></html>'],
  ],
  refuses: (field, value) =>
    unsupportedValues.has(field)
      ? // owndev/Open-WebUI-Functions#98
        hostedError(
          400,
          `Unsupported value: '${field}' does not support ${JSON.stringify(value)} with this model. Only the default (1) value is supported.`,
          'unsupported_value',
          field,
        )
      : field === 'max_tokens'
        ? // devnullvoid/dms-ai-assistant#12
          hostedError(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            'unsupported_parameter',
            field,
          )
        : // xlinx/sd-webui-decadetw-auto-prompt-llm#29
          hostedError(400, `Unrecognized request argument supplied: ${field}`, null),
  rateLimited: [
    429,
    {
      error: { message: 'Rate limit reached for requests', type: 'requests', param: null, code: 'rate_limit_exceeded' },
    },
    { 'retry-after': '7' },
  ],
  overloaded: [
    503,
    { error: { message: 'The server is currently overloaded.', type: 'server_error', param: null, code: null } },
  ],
  filtered: [
    completed(hostedModel, { message: { content: null, refusal: 'I cannot help.' }, finish_reason: 'stop' }),
    completed(hostedModel, { message: { content: '{"score": [' }, finish_reason: 'content_filter' }),
    hostedError(
      400,
      "The response was filtered due to the prompt triggering the service's content management policy.",
      'content_filter',
      'prompt',
    ),
  ],
  thinking: [
    // BerriAI/litellm-docs#559
    completed(
      hostedModel,
      { message: { content: '' }, finish_reason: 'length' },
      { completion_tokens: 16, completion_tokens_details: { reasoning_tokens: 16 } },
    ),
    // decolua/9router#972
    hostedError(
      400,
      'Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.',
      null,
    ),
  ],
  alias: 'my-deployment',
};

export const serverKinds: readonly ServerKind[] = [vllm, sglang, llamaCpp, hosted];
